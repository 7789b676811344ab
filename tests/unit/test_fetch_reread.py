"""Invariant 4 in small: what was read from the store is read again from the cache, byte for byte."""

import asyncio
from pathlib import Path

from gateway.addresses import Address
from gateway.assembly import running_gateway
from gateway.cli.client import Client
from gateway.cli.demo import create_topic
from gateway.config import load_settings
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Record, build_batch

PRODUCE_VERSION, FETCH_VERSION = 13, 16
MAX_BYTES = 1 << 20
BATCH = bytes(build_batch([Record(0, 0, b"key", bytes(500))], base_timestamp=1))


def produce(gateway: Address, partitions: int) -> None:
    """One batch to each partition, in one draft."""
    with Client(gateway) as client:
        topic = TopicProduceData(
            topic_id=create_topic(client),
            partition_data=[PartitionProduceData(index, BATCH) for index in range(partitions)],
        )
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        client.ask(ApiKey.PRODUCE, PRODUCE_VERSION, request)


def fetch_first_partition(gateway: Address) -> bytes:
    with Client(gateway) as client:
        partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=MAX_BYTES)
        topic = FetchTopic(topic_id=create_topic(client), partitions=[partition])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=MAX_BYTES, topics=[topic])
        data = client.ask(ApiKey.FETCH, FETCH_VERSION, request).responses[0].partitions[0]
        assert data.error_code == 0
        return bytes(data.records)


async def test_invariant_04_runs_of_several_objects_are_the_same_when_read_again(tmp_path: Path) -> None:
    flags = {
        "listeners.listen": "PLAINTEXT://127.0.0.1:0",
        "admin.listen": "",
        "storage.data_dir": str(tmp_path / "data"),
        "broker.num.partitions": "3",
    }
    settings = load_settings(flags, {})
    for partitions in (1, 2, 3):
        # Each incarnation of a gateway writes an object of its own. The more partitions a draft has, the
        # later in it is the first batch.
        async with running_gateway(settings) as gateway:
            await asyncio.to_thread(produce, Address("127.0.0.1", gateway.bound[0].port), partitions)
    async with running_gateway(settings) as gateway:
        address = Address("127.0.0.1", gateway.bound[0].port)
        first, second = [await asyncio.to_thread(fetch_first_partition, address) for _ in range(2)]
        assert len(first) == 3 * len(BATCH)
        assert first == second
