"""A gateway with nothing local: what was acknowledged is there on an empty machine."""

import asyncio
import json
import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.sample_records import small_records
from tests.support.client import CLIENT_TIMEOUT_S, Codec, Earliest
from tests.support.far_stores import FarGateway, FarPlace, far_gateway
from tests.support.gateway import GatewayNotReady
from tests.support.http_proxy import running_proxy
from tests.support.s3_servers import BUCKET, S3Server

TOPIC = "far"
GROUP = "readers"
PARTITIONS = 2
RECORDS = 200
READY = '"gateway.ready"'


def read_in_group(bootstrap: str, count: int) -> int:
    """How many new records the group has read, at most `count`; what it has read is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        read = 0
        while read < count:
            found = consumer.consume(count - read, CLIENT_TIMEOUT_S)
            assert found, f"{read} of {count} records"
            assert all(message.error() is None for message in found)
            read += len(found)
        consumer.commit(asynchronous=False)
        return read
    finally:
        consumer.close()


def test_an_empty_machine_goes_on_where_the_last_one_was_killed(far: FarPlace, tmp_path: Path) -> None:
    records = small_records(RECORDS, PARTITIONS)
    with far_gateway(far, tmp_path / "first") as gateway:
        client = ConfluentClient(gateway.bootstrap)
        client.create_topic(TOPIC, PARTITIONS)
        offsets = client.produce(TOPIC, records[:100], Codec.LZ4, idempotent=True)
        assert offsets == [number // PARTITIONS for number in range(100)]
        assert read_in_group(gateway.bootstrap, 60) == 60
        assert written_files(gateway) == set()
        (event,) = [json.loads(line) for line in gateway.log_path.read_text().splitlines() if READY in line]
        assert (event["metadata"], event["data"]) == (far.metadata, far.data) and "data_dir" not in event
        with urllib.request.urlopen(
            f"http://{gateway.admin.address}/readyz", timeout=CLIENT_TIMEOUT_S
        ) as page:
            assert page.status == 200
        gateway.kill9()
    with far_gateway(far, tmp_path / "second") as gateway:
        client = ConfluentClient(gateway.bootstrap)
        offsets = client.produce(TOPIC, records[100:], Codec.LZ4, idempotent=True)
        assert offsets == [50 + number // PARTITIONS for number in range(100)]
        for partition in range(PARTITIONS):
            found = client.consume(TOPIC, [partition], Earliest(), RECORDS // PARTITIONS)
            assert [one.record.value for one in found] == [
                one.value for one in records[partition::PARTITIONS]
            ]
        assert read_in_group(gateway.bootstrap, RECORDS - 60) == RECORDS - 60


def written_files(gateway: FarGateway) -> set[str]:
    """That the gateway has open, but for its log."""
    if sys.platform != "linux":
        pytest.skip("asks /proc")
    names: set[str] = set()
    for descriptor in Path(f"/proc/{gateway.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as connections are
            names.add(os.readlink(descriptor))
    return {name for name in names if name.startswith("/") and not name.startswith("/dev/")} - {
        str(gateway.log_path)
    }


@contextmanager
def store_without_conditions(target: str) -> Iterator[str]:
    """The endpoint of an S3 store that ignores If-None-Match."""
    loop, is_up, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    endpoint = ""

    async def run() -> None:
        nonlocal endpoint
        async with running_proxy(target) as proxy:
            proxy.dropped.add(("PUT", "if-none-match"))
            endpoint = proxy.endpoint
            is_up.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    try:
        assert is_up.wait(CLIENT_TIMEOUT_S)
        yield endpoint
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(CLIENT_TIMEOUT_S)
        loop.close()


def keys_below(server: S3Server, prefix: str) -> list[str]:
    found = server.boto3_client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for entry in found.get("Contents", ())]


def test_a_store_that_fails_the_proof_ends_the_start_with_4(moto_s3: S3Server, tmp_path: Path) -> None:
    with store_without_conditions(moto_s3.endpoint) as endpoint:
        at = "?endpoint={}&region=us-east-1"
        metadata = f"s3://{BUCKET}/unfit/metadata{at.format(moto_s3.endpoint)}"
        data = f"s3://{BUCKET}/unfit/data{at.format(endpoint)}"
        with pytest.raises(GatewayNotReady) as refusal:
            FarGateway(FarPlace("bucket", metadata, data), tmp_path).start()
    assert refusal.value.exit_code == 4
    assert "Traceback" not in refusal.value.log
    (sentence,) = [line for line in refusal.value.log.splitlines() if line.startswith("dragoman: ")]
    assert endpoint in sentence and "more than one succeeded (If-None-Match)" in sentence
    # The other store was sound, and nothing was begun in it.
    found = moto_s3.boto3_client().list_objects_v2(Bucket=BUCKET, Prefix="unfit/")
    assert found["KeyCount"] == 0
