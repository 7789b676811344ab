"""A ledger with batches, in memory and all real: shard, segment store, produce and fetch services."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.coordination.shard import Shard
from gateway.fetch.budget import NO_OWNER
from gateway.fetch.cache import RunCache
from gateway.fetch.list_offsets import ListOffsetsService, OffsetQuery, OffsetResult
from gateway.fetch.operation import FetchOptions
from gateway.fetch.reader import RunReader
from gateway.fetch.service import FetchService
from gateway.fetch.sessions import FetchSessions
from gateway.fetch.stream import BatchStream, ByteRange
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from gateway.scheduling.batch_opening import BatchOpener
from gateway.scheduling.slices import Owner
from gateway.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from gateway.wire.primitives import ZERO_UUID
from ledger.batch.header import check_batches
from ledger.batch.records import Record, build_batch
from ledger.partitions.requests import DeleteRecords
from ledger.partitions.state import PartitionLog
from ledger.ports import SegmentStore
from ledger.records import at_once
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.types import Buffer, Position, TopicId
from tests.support.completions import AwaitedProduce

PRINCIPAL = "User:test"
MIB = 1024 * 1024
NOW_MS = 1_700_000_000_000


class CountingSegments(MemorySegments):
    """Records what was read, and can make objects vanish or break."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[list[Position]] = []

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        self.reads.append(list(positions))
        # As a real store: the bytes come in a later iteration of the event loop.
        await asyncio.sleep(0)
        return await super().read(positions)

    @property
    def bytes_read(self) -> int:
        return sum(position.size for read in self.reads for position in read)

    def overwrite(self, locator: str, start: int, data: bytes) -> None:
        held = bytearray(self._objects[locator])
        held[start : start + len(data)] = data
        self._objects[locator] = bytes(held)


def batch_of(
    *values: bytes, timestamps: Sequence[int] = (), base_timestamp: int = NOW_MS, **options: Any
) -> bytes:
    """A batch with a record for each value; timestamps count from `base_timestamp`."""
    stamps = timestamps or [0] * len(values)
    records = [
        Record(i, stamp, None, value) for i, (value, stamp) in enumerate(zip(values, stamps, strict=True))
    ]
    return build_batch(records, base_timestamp=base_timestamp, **options)


def take(stream: BatchStream, byte_range: ByteRange, stored: Sequence[Buffer]) -> int:
    """All of a range at once."""
    return at_once(stream.taking(byte_range, stored))


@dataclass
class ReadingWorld:
    """One gateway's ledger, with its produce, fetch and list offsets services."""

    shard: Shard
    segments: CountingSegments
    produce_service: ProduceService
    fetch_service: FetchService
    list_offsets_service: ListOffsetsService
    cache: RunCache
    alarms: list[str]
    opener: BatchOpener
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def create(self, name: str = "t", partitions: int = 1) -> bytes:
        topic_id = TopicId(os.urandom(16))
        await self.shard.ask(CreateTopic(name, topic_id, partitions, {}), self.soon())
        return topic_id

    async def delete(self, topic_id: bytes) -> None:
        await self.shard.ask(DeleteTopic(TopicId(topic_id)), self.soon())

    async def delete_records(self, topic_id: bytes, partition: int, offset: int) -> None:
        await self.shard.ask(DeleteRecords(TopicId(topic_id), partition, offset), self.soon())

    def log(self, name: str = "t", partition: int = 0) -> PartitionLog:
        return self.shard.state.topics.by_name[name].partitions[partition]

    async def produce(
        self, *batches: bytes, name: str = "t", partition: int = 0, stamp: bool = False
    ) -> list[int]:
        """All in one draft, so adjacent in one object. Base offsets."""
        return await self.produce_many([(name, partition, batch) for batch in batches], stamp=stamp)

    async def produce_many(self, batches: Sequence[tuple[str, int, bytes]], stamp: bool = False) -> list[int]:
        completion = AwaitedProduce()
        pending = []
        for name, partition, batch in batches:
            checked = check_batches(memoryview(batch), 100 * MIB)
            log = self.log(name, partition)
            pending.append(self.produce_service.add(log, checked, completion, TopicPolicy(100 * MIB, stamp)))
        await completion.completed
        assert not any(batch.error for batch in pending)
        return [batch.base_offset for batch in pending]

    async def fetch(
        self,
        *partitions: tuple[Any, ...],
        version: int = 12,
        principal: str = PRINCIPAL,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 * MIB,
        isolation: int = 0,
        session: tuple[int, int] = (0, -1),
        forget: Sequence[tuple[str | bytes, int]] = (),
        unsent: list[Callable[[], None]] | None = None,
        owner: Owner = NO_OWNER,
    ) -> FetchResponse:
        """Each partition: (topic name or id, index, offset[, max bytes[, leader epoch]]). With `unsent` the
        response keeps its share of the budget until what is appended there is called."""
        topics = [_fetch_topic(*partition) for partition in partitions]
        forgotten = [
            ForgottenTopic(t if isinstance(t, str) else "", t if isinstance(t, bytes) else ZERO_UUID, [index])
            for t, index in forget
        ]
        request = FetchRequest(max_wait_ms, min_bytes, max_bytes, isolation, *session, topics, forgotten)
        now = asyncio.get_running_loop().time()
        fetched = await self.fetch_service.fetch(version, request, principal, now, owner=owner)
        if fetched.on_sent is not None:
            if unsent is None:
                fetched.on_sent()
            else:
                unsent.append(fetched.on_sent)
        return fetched.response

    async def one(self, *partition: Any, **options: Any) -> FetchPartitionResponse:
        """The response for a single partition."""
        return only(await self.fetch(partition, **options))

    async def offsets(
        self, *queries: OffsetQuery, version: int = 11, isolation: int = 0
    ) -> list[OffsetResult]:
        return await self.list_offsets_service.list_offsets(version, queries, isolation, self.soon())

    async def offset(self, timestamp: int, **options: Any) -> OffsetResult:
        (result,) = await self.offsets(OffsetQuery("t", 0, timestamp), **options)
        return result

    @staticmethod
    def soon() -> float:
        return asyncio.get_running_loop().time() + 10


def _fetch_topic(
    topic: str | bytes, index: int, offset: int, max_bytes: int = MIB, epoch: int = -1
) -> FetchTopic:
    partition = FetchPartition(index, epoch, offset, -1, -1, max_bytes)
    if isinstance(topic, bytes):
        return FetchTopic("", topic, [partition])
    return FetchTopic(topic, ZERO_UUID, [partition])


def parts(response: FetchResponse) -> list[FetchPartitionResponse]:
    return [partition for topic in response.topics for partition in topic.partitions]


def only(response: FetchResponse) -> FetchPartitionResponse:
    (partition,) = parts(response)
    return partition


def records_of(partition: FetchPartitionResponse) -> bytes:
    return b"".join(partition.records or ())


def with_base(batch: bytes, base_offset: int) -> bytes:
    """A batch as it should come out at this offset."""
    return base_offset.to_bytes(8, "big") + batch[8:12] + bytes(4) + batch[16:]


@asynccontextmanager
async def reading_world(
    options: FetchOptions | None = None,
    cache_bytes: int = 64 * MIB,
    slots: int = 10,
    exclusive: bool = True,
    produce_to_cache: bool = True,
    segments: SegmentStore | None = None,
) -> AsyncIterator[ReadingWorld]:
    shard = Shard(MetadataJournal(MemoryMetadata(exclusive), 0), LedgerState(), lambda: NOW_MS)
    await shard.start(1, "cluster", asyncio.get_running_loop().time() + 10)
    counting = CountingSegments()
    segments = segments or counting
    alarms: list[str] = []
    cache = RunCache(cache_bytes)
    reader = RunReader(segments, cache, lambda number: shard.state.objects.by_number[number], alarms.append)
    ids = itertools.count(100)
    fetch = FetchService(
        shard, reader, FetchSessions(slots, lambda: next(ids)), options or FetchOptions(), lambda: NOW_MS
    )
    opener = BatchOpener()
    offsets = ListOffsetsService(shard, reader, opener, 128 * MIB)
    stored = cache if produce_to_cache else None
    produce = ProduceService(shard, segments, ProduceOptions(64 * MIB, 3000, 4), lambda: NOW_MS, stored)
    try:
        yield ReadingWorld(shard, counting, produce, fetch, offsets, cache, alarms, opener)
    finally:
        fetch.close()
        await reader.close()
        opener.close()
        await produce.close(1)
        await shard.close()
