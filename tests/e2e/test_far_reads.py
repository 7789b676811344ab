"""Consumers of a bucket: what they read together comes over the network once."""

import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.client_confluent import ConfluentClient
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.far_stores import BUCKET_ALONE, FarGateway, FarPlace, far_gateway

TOPIC = "read"
PARTITIONS = 4
RECORDS = 12_000
RECORD_BYTES = 1024
CONSUMERS = 3


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "message.timeout.ms": 60_000})
    values = [os.urandom(RECORD_BYTES) for _ in range(100)]
    for number in range(RECORDS):
        producer.produce(TOPIC, values[number % len(values)], partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def consume(bootstrap: str) -> int:
    """How many records all partitions have."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        read = 0
        while read < RECORDS:
            found = consumer.consume(1000, CLIENT_TIMEOUT_S)
            assert found, f"{read} of {RECORDS} records"
            assert all(message.error() is None for message in found)
            read += len(found)
        return read
    finally:
        consumer.close()


def object_reads(gateway: FarGateway) -> dict[str, float]:
    """The counts of the metrics page."""
    url = f"http://{gateway.admin.address}/metrics"
    with urllib.request.urlopen(url, timeout=CLIENT_TIMEOUT_S) as page:
        lines = [line.rsplit(" ", 1) for line in page.read().decode().splitlines()]
    return {name: float(count) for name, count in lines if name.startswith("dragoman_object_read")}


@pytest.mark.parametrize("far", [BUCKET_ALONE], indirect=True)
def test_three_consumers_of_a_cold_gateway_read_each_object_once(far: FarPlace, tmp_path: Path) -> None:
    with far_gateway(far, tmp_path / "first") as gateway:
        ConfluentClient(gateway.bootstrap).create_topic(TOPIC, PARTITIONS)
        produce(gateway.bootstrap)
        assert consume(gateway.bootstrap) == RECORDS
        # What was just written is in memory.
        assert object_reads(gateway)["dragoman_object_read_bytes_total"] == 0
    with far_gateway(far, tmp_path / "second") as gateway:
        with ThreadPoolExecutor(CONSUMERS) as threads:
            assert list(threads.map(consume, [gateway.bootstrap] * CONSUMERS)) == [RECORDS] * CONSUMERS
        reads = object_reads(gateway)
        read_bytes = reads["dragoman_object_read_bytes_total"]
        assert RECORDS * RECORD_BYTES < read_bytes < 1.2 * RECORDS * RECORD_BYTES
        assert reads['dragoman_object_reads_total{result="range"}'] == 0
        assert reads['dragoman_object_reads_total{result="hit"}'] > 0
