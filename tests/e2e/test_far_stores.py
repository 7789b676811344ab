"""A gateway with nothing local: what was acknowledged is there on an empty machine."""

import os
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.sample_records import small_records
from tests.support.client import CLIENT_TIMEOUT_S, Codec, Earliest
from tests.support.far_stores import FarGateway, FarPlace, far_gateway

TOPIC = "far"
GROUP = "readers"
PARTITIONS = 2
RECORDS = 200


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
    descriptors = Path(f"/proc/{gateway.pid}/fd")
    names = {os.readlink(descriptor) for descriptor in descriptors.iterdir()}
    return {name for name in names if name.startswith("/") and not name.startswith("/dev/")} - {
        str(gateway.log_path)
    }
