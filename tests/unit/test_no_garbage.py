"""Requests leave no cycles behind: the memory of their frames comes back without a collection of garbage,
which a gateway lets happen seldom."""

import asyncio
import gc
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from adapters.metadata.memory import MemoryMetadata
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Producer, Record, build_batch
from ledger.errors import StoreUnavailable
from ledger.partitions.requests import ReserveProducerIds
from ledger.ports import PutOutcome
from tests.support.certificates import Authority
from tests.support.in_memory import InMemoryGateway, in_memory_gateway
from tests.support.raw import request
from tests.support.shards import open_shard

REQUESTS = 20
LARGE = 50_000
OURS = ("gateway.", "ledger.", "adapters.")


@pytest.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway() as gateway:
        await gateway.create("t", 3)
        yield gateway


@contextmanager
def collected() -> Iterator[Counter[str]]:
    """What only a collection of garbage finds, by type: objects of ours, and large buffers."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        for thing in gc.garbage:
            is_ours = type(thing).__module__.startswith(OURS)
            if is_ours or (isinstance(thing, memoryview) and thing.nbytes >= LARGE):
                found[type(thing).__qualname__] += 1
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def produce(
    partitions: Sequence[int], producer: Producer, topic: str = "t", acks: int = -1
) -> ProduceRequest:
    batch = bytes(build_batch([Record(0, 0, None, bytes(LARGE))], base_timestamp=1, producer=producer))
    data = [PartitionProduceData(partition, batch) for partition in partitions]
    return ProduceRequest(None, acks, 1000, [TopicProduceData(topic, partition_data=data)])


async def test_produce_leaves_no_cycles(gateway: InMemoryGateway) -> None:
    await gateway.ask(ApiKey.PRODUCE, 8, produce([0], Producer(-1, -1, -1)))
    with collected() as found:
        for number in range(REQUESTS):
            for request in (
                produce([0, 1, 2], Producer(7, 0, number)),  # stored
                produce([0, 5], Producer(8, 0, 3 * number)),  # one is not there, one is out of order
                produce([0], Producer(-1, -1, -1), "unknown"),
                produce([0], Producer(-1, -1, -1), acks=7),
            ):
                await gateway.ask(ApiKey.PRODUCE, 8, request)
        await asyncio.sleep(0.05)
    assert not found


async def test_fetch_and_metadata_leave_no_cycles(gateway: InMemoryGateway) -> None:
    await gateway.ask(ApiKey.PRODUCE, 8, produce([0, 1], Producer(-1, -1, -1)))
    partitions = [FetchPartition(0), FetchPartition(1), FetchPartition(2), FetchPartition(9)]
    fetch = FetchRequest(max_wait_ms=5, min_bytes=10_000_000, topics=[FetchTopic("t", partitions=partitions)])
    await gateway.ask(ApiKey.FETCH, 11, fetch)
    with collected() as found:
        for _ in range(REQUESTS):
            await gateway.ask(ApiKey.FETCH, 11, fetch)
            await gateway.ask(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="t")]))
        await asyncio.sleep(0.05)
    assert not found


async def test_heartbeats_and_commits_of_offsets_leave_no_cycles(gateway: InMemoryGateway) -> None:
    def commit(partition: int) -> OffsetCommitRequest:
        parts = [OffsetCommitRequestPartition(partition, 5)]
        return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=parts)])

    requested = (
        (ApiKey.OFFSET_COMMIT, 9, commit(0)),
        (ApiKey.OFFSET_COMMIT, 9, commit(77)),  # not there
        (ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "ghost")),
        (ApiKey.HEARTBEAT, 4, HeartbeatRequest("", 1, "ghost")),
    )
    for key, version, message in requested:
        await gateway.ask(key, version, message)
    with collected() as found:
        for _ in range(REQUESTS):
            for key, version, message in requested:
                await gateway.ask(key, version, message)
        await asyncio.sleep(0.05)
    assert not found


class AwayMetadata(MemoryMetadata):
    """Fails while it is away, for certain."""

    is_away = False

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().put(key, value, expect)


async def test_what_waits_for_a_journal_that_fails_is_left_in_no_cycle() -> None:
    store = AwayMetadata()
    shard = await open_shard(store, None, None, 1, lambda: 1)
    store.is_away = True
    with collected() as found:
        for _ in range(REQUESTS):
            with pytest.raises(StoreUnavailable, match="away"):
                await shard.submit(ReserveProducerIds(1))
    await shard.close()
    assert not found


def test_connections_over_tls_leave_no_cycles(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    settings = {
        "listeners.listen": "SSL://127.0.0.1:0",
        "tls.certificate": str(issued.certificate),
        "tls.key": str(issued.key),
    }
    trusting = ssl.create_default_context(cafile=str(authority.file))

    async def come_and_go() -> Counter[str]:
        async with in_memory_gateway(settings) as gateway:
            port = gateway.running.bound[0].port
            with collected() as found:
                for _ in range(REQUESTS):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
                    writer.write(request(ApiKey.API_VERSIONS, 0, b""))
                    await reader.readexactly(struct.calcsize(">ii"))
                    writer.close()
                # The watch over connections lets go of the last one that it saw.
                await asyncio.sleep(1.0)
            return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert not runner.run(come_and_go())
