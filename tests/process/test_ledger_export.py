"""`dragoman ledger export` as an operator sees it: what is in the target, what is said, and what is wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import walk
from ledger.batch.records import Record, build_batch, read_batch
from ledger.formats.kafscale import adopted_runs, found_segments
from ledger.formats.segment import HEAD_BYTES, TRAILER_BYTES
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.topics import create_topics
from tests.support.versions import ROOT

COMMAND = [sys.executable, "-m", "gateway.cli.main", "ledger", "export"]
TRANSACTIONS = ROOT / "tests" / "fixtures" / "data_directory_v6" / "directory"
WAIT_S = 200.0
START_S = 200.0


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def produce(gateway: Gateway, topic: str, values: list[bytes]) -> None:
    """A batch each, which is a run of its own."""
    stamp = int(time.time() * 1000)
    with Client(Address(gateway.host, gateway.port), timeout=20.0) as client:
        for value in values:
            batch = bytes(build_batch([Record(0, 0, b"k", value, ())], base_timestamp=stamp))
            data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
            response = client.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, -1, 5000, [data]))
            assert response.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def gateway(gateway_factory: GatewayFactory) -> Gateway:
    started = gateway_factory(["--set", "housekeeping.merge_runs=0"])
    started.start(START_S)
    create_topics(started.bootstrap, {"orders": 1, "payments": 1})
    produce(started, "orders", [b"o-%d" % at for at in range(20)])
    produce(started, "payments", [b"p"])
    return started


def stored(directory: Path) -> Iterator[tuple[str, int, bytes]]:
    """(topic, offset, batch after its patched head) of all segments, each of which is whole."""
    keys = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    for found in found_segments([(key, (directory / key).stat().st_size) for key in keys]):
        assert found.index_key is not None
        data = (directory / found.key).read_bytes()
        assert adopted_runs(found, data, (directory / found.index_key).read_bytes())
        body = memoryview(data)[HEAD_BYTES:-TRAILER_BYTES]
        for batch in walk(body):
            whole = body[batch.position : batch.position + batch.size_bytes]
            yield found.partition.topic, batch.base_offset, bytes(whole[16:])


@pytest.mark.timeout(900)
def test_an_export_has_every_batch_once_and_goes_on_where_it_ended(gateway: Gateway, tmp_path: Path) -> None:
    data_dir = ["--data-dir", str(gateway.data_dir)]
    done = run("file:target", *data_dir, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Exported 2 partitions in [\d.]+ s: 2 segments with 21 batches written; ", done.stdout)
    produce(gateway, "orders", [b"later"])
    again = run(f"file:{tmp_path}/target", *data_dir, "--topics", "orders", "--json")
    assert again.returncode == 0, again.stderr
    summary = json.loads(again.stdout)
    assert (summary["partitions"], summary["segments"], summary["present"], summary["batches"]) == (
        1,
        1,
        1,
        1,
    )
    found = list(stored(tmp_path / "target"))
    assert [(topic, offset) for topic, offset, _ in found] == [
        *(("orders", at) for at in range(21)),
        ("payments", 0),
    ]
    assert b"o-7" in found[7][2] and b"later" in found[20][2]
    gateway.terminate()
    alone = run(f"file:{tmp_path}/target", *data_dir, "--json")
    assert alone.returncode == 0, alone.stderr
    summary = json.loads(alone.stdout)
    assert (summary["partitions"], summary["segments"], summary["present"]) == (2, 0, 3)


@pytest.mark.timeout(900)
def test_what_is_wrong_with_an_export_is_one_sentence(gateway: Gateway, tmp_path: Path) -> None:
    data_dir = ["--data-dir", str(gateway.data_dir)]
    for arguments, code, reason in (
        (["/mnt/target", *data_dir], 2, "TARGET is s3://BUCKET/PREFIX[?endpoint=URL], or file:DIR"),
        (["file:t", "--namespace", "a/b", *data_dir], 2, "--namespace: 'a/b' cannot be a part of a key"),
        ([f"file:{tmp_path}/t", "--topics", "absent", *data_dir], 1, "there is no topic absent"),
        (
            [f"file:{tmp_path}/no/where", *data_dir],
            4,
            "no/where: its parent directory does not exist; create it or choose another TARGET\n",
        ),
        ([f"file:{tmp_path}/t", "--data-dir", str(tmp_path)], 2, "there is no ledger in"),
    ):
        failed = run(*arguments)
        assert (failed.returncode, failed.stdout) == (code, ""), failed.stderr
        assert failed.stderr.startswith("dragoman: ") and reason in failed.stderr, failed.stderr
        assert failed.stderr.count("\n") == 1, failed.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_an_export_has_what_a_consumer_of_its_isolation_level_sees(tmp_path: Path, level: str) -> None:
    directory = shutil.copytree(TRANSACTIONS, tmp_path / "directory")
    (tmp_path / "target").mkdir()
    arguments = [f"file:{tmp_path}/target", "--data-dir", str(directory)]
    done = run(*arguments, "--isolation-level", level, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    lines = (TRANSACTIONS.parent / "records.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["topic"] == "orders"]
    lost = sum(record["value"].endswith("lost") for record in records)
    readable = (
        records if level == "read_uncommitted" else [r for r in records if not r["value"].endswith("lost")]
    )
    assert lost and bool(summary["left_out"]) == (level == "read_committed")
    found = sorted(exported(tmp_path / "target", "orders"))
    assert found == sorted((r["partition"], r["offset"], r["value"]) for r in readable)
    # An open transaction is nothing that a consumer of committed records sees.
    assert bool(list(exported(tmp_path / "target", "open"))) == (level == "read_uncommitted")
    other = {"read_committed": "read_uncommitted", "read_uncommitted": "read_committed"}[level]
    mixed = run(*arguments, "--isolation-level", other)
    assert mixed.returncode == 1 and "of the other isolation level" in mixed.stderr, mixed.stderr


def exported(directory: Path, topic: str) -> Iterator[tuple[int, int, str]]:
    """(partition, offset, value) of all records in the target."""
    for path in (directory / "default" / topic).rglob("*.kfs"):
        body = memoryview(path.read_bytes())[HEAD_BYTES:-TRAILER_BYTES]
        for batch in walk(body):
            header, records = read_batch(body[batch.position : batch.position + batch.size_bytes], 1 << 20)
            assert not header.is_control
            for record in records:
                value = bytes(record.value or b"").decode()
                yield int(path.parent.name), header.base_offset + record.offset_delta, value
