"""The look-up of positions over all journals and stores: wherever batches are, their bytes are found."""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from ledger.batch.header import read_header
from tests.support.data_files import in_log, in_sqlite
from tests.support.etcd import EtcdServer
from tests.support.gateway import Gateway, GatewayFactory

WAIT_S: Final = 30.0
RECORDS: Final = 20


def produced(gateway: Gateway) -> None:
    """Batches of one record each."""
    for i in range(RECORDS):
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0})
        producer.produce("t", f"value-{i}".encode(), partition=0)
        assert producer.flush(WAIT_S) == 0


def positions(gateway: Gateway) -> list[Any]:
    found = []
    for offset in range(RECORDS):
        query = urllib.parse.urlencode({"topic": "t", "partition": 0, "offset": offset})
        url = f"http://{gateway.admin.address}/api/position?{query}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as response:
            found.append(json.loads(response.read()))
    return found


def check(pages: list[Any]) -> None:
    """Each offset has a batch with its record, within its run and its object."""
    for offset, page in enumerate(pages):
        run, batch = page["run"], page["batch"]
        assert "error" not in batch, page
        assert run["base"] <= batch["baseOffset"] <= offset <= batch["lastOffset"] <= run["last"]
        assert run["start"] <= batch["start"] < batch["end"] <= run["start"] + run["size"]
        dump = bytes.fromhex(batch["dump"])
        assert f"value-{offset}".encode() in dump and batch["crcMatches"]
        assert read_header(memoryview(dump)).record_count == batch["records"]


def started(factory: GatewayFactory, *options: str) -> Gateway:
    gateway = factory([*options, "--set", "admin.read_records=true"])
    gateway.start()
    produced(gateway)
    return gateway


@pytest.mark.parametrize("journal", ["sqlite", "local-log"])
def test_positions_on_local_files(gateway_factory: GatewayFactory, tmp_path: Path, journal: str) -> None:
    data = tmp_path / "gateway-0" / "data"
    gateway = started(gateway_factory, *(in_sqlite if journal == "sqlite" else in_log)(data))
    pages = positions(gateway)
    check(pages)
    for page in pages:
        name = Path(page["object"]["locator"]).name
        (file,) = [path for path in data.rglob("*") if path.name == name]
        stored = file.read_bytes()[page["batch"]["start"] : page["batch"]["end"]]
        assert stored.hex().startswith(page["batch"]["dump"])


def test_positions_inside_of_journal_entries(
    gateway_factory: GatewayFactory, tmp_path: Path, etcd: EtcdServer
) -> None:
    stores = ["--metadata", etcd.url(), "--data", f"file:{tmp_path / 'records'}"]
    inline = ["--set", "storage.inline_bytes=16384", "--set", "ledger.feature_level=5"]
    pages = positions(started(gateway_factory, *stores, *inline))
    check(pages)
    assert "journal entry" in {page["object"]["kind"] for page in pages}
