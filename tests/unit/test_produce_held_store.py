"""The produce service while a store hangs or fails: what it keeps, in which order, and how it closes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.coordination.shard import Shard
from gateway.produce.accumulator import PendingBatch
from gateway.produce.sequence_gaps import SequenceGaps
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from ledger.batch.header import check_batches
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.errors import StoreUnavailable
from ledger.objects.requests import RaiseFloor
from ledger.partitions.producers import MAX_SEQUENCE, ProducerState
from ledger.partitions.state import PartitionLog
from ledger.records import FIRST_LEVEL
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch, Placement
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id

NOW_MS = 1_700_000_000_000
WAIT_S = 60.0
DRAFT_BYTES = 64 * 1024


class HeldSegments(MemorySegments):
    """Writes wait while held; the numbered ones (from 1) fail."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()
        self.failing: set[int] = set()
        self.begun = self.ended = 0

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        self.begun += 1
        number = self.begun
        await self.may_go.wait()
        self.ended += 1
        if number in self.failing:
            raise StoreUnavailable("the disk said no")
        return await super().write(batches, created_ms, feature_level)


class Clock:
    now_ms = NOW_MS


class World:
    def __init__(self, shard: Shard, segments: HeldSegments, service: ProduceService, clock: Clock) -> None:
        self.clock = clock
        self.shard = shard
        self.segments = segments
        self.service = service

    @property
    def log(self) -> PartitionLog:
        return self.shard.state.topics.by_name["t"].partitions[0]

    def add(self, sequence: int = -1, size: int = 100, producer: int = 7) -> PendingBatch:
        """One batch of a request of its own; -1: not idempotent."""
        ids = Producer(producer, 0, sequence) if sequence >= 0 else NO_PRODUCER
        data = build_batch([Record(0, 0, None, bytes(size))], base_timestamp=NOW_MS, producer=ids)
        return self.service.add(
            self.log, check_batches(memoryview(data), 1 << 24), AwaitedProduce(), TopicPolicy(1 << 24)
        )


@asynccontextmanager
async def world(drafts_in_flight: int = 4) -> AsyncIterator[World]:
    clock = Clock()
    shard = Shard(MetadataJournal(MemoryMetadata(), 0), LedgerState(), lambda: clock.now_ms)
    deadline = asyncio.get_running_loop().time() + WAIT_S
    await shard.start(1, "cluster", deadline)
    await shard.ask(CreateTopic("t", topic_id(1), 1, {}), deadline)
    segments = HeldSegments()
    options = ProduceOptions(DRAFT_BYTES, 3000, drafts_in_flight)
    service = ProduceService(shard, segments, options, lambda: clock.now_ms)
    try:
        yield World(shard, segments, service, clock)
    finally:
        segments.may_go.set()
        await service.close(1)
        await shard.close()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def results(*batches: PendingBatch) -> list[tuple[str, int]]:
    async with asyncio.timeout(WAIT_S):
        for batch in batches:
            assert isinstance(batch.completion, AwaitedProduce)
            await batch.completion.completed
    return [(batch.error or "", batch.base_offset) for batch in batches]


async def test_while_nothing_can_be_stored_only_batches_whose_requests_still_wait_are_kept() -> None:
    async with world(drafts_in_flight=1) as w:
        w.add()
        await turns()
        for _ in range(50):
            given_up = [w.add(size=10_000) for _ in range(20)]
            await turns(2)
            for batch in given_up:
                batch.completion.is_done = True
        kept = w.service._accumulator
        assert kept.waiting_bytes <= 2 * 20 * 11_000 + DRAFT_BYTES
        last = w.add()
        w.segments.may_go.set()
        assert await results(last) == [("", 1)]


async def test_nothing_is_stored_once_the_service_is_closed() -> None:
    async with world() as w:
        first = w.add()
        await turns()
        second = w.add()
        await w.service.close(0.05)
        begun = w.segments.begun
        w.segments.may_go.set()
        await turns(50)
        assert w.segments.begun == begun == 1
        assert (first.error, second.error) == ("REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR")
        assert w.log.high_watermark == 0


async def test_a_batch_of_a_new_producer_is_not_stored_after_the_gap_of_one_that_timed_out() -> None:
    async with world(drafts_in_flight=1) as w:
        w.add()
        await turns()
        first, second = w.add(0), w.add(1)
        first.completion.is_done = True
        w.segments.may_go.set()
        assert await results(second) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)]
        again = [w.add(0), w.add(1)]
        assert await results(*again) == [("", 1), ("", 2)]


async def test_a_batch_of_a_new_producer_is_not_stored_after_the_gap_of_a_draft_that_failed() -> None:
    async with world() as w:
        w.segments.failing = {1}
        first = w.add(0, size=DRAFT_BYTES)
        second = w.add(1, size=DRAFT_BYTES)
        await turns()
        assert w.segments.begun == 2
        w.segments.may_go.set()
        assert await results(first, second) == [
            ("KAFKA_STORAGE_ERROR", -1),
            ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
        ]
        again = [w.add(0), w.add(1)]
        assert await results(*again) == [("", 0), ("", 1)]


async def test_of_a_producer_whose_batches_failed_the_lowest_sequence_is_noted_until_one_is_committed() -> (
    None
):
    gaps = SequenceGaps(max_gaps=2)
    log = PartitionLog(0, topic_id(1), 0)

    def batch(sequence: int, producer: int = 7) -> PendingBatch:
        ids = Producer(producer, 0, sequence)
        data = build_batch([Record(0, 0, None, b"x")], base_timestamp=NOW_MS, producer=ids)
        return PendingBatch(log, check_batches(memoryview(data), 1 << 20).header, data, AwaitedProduce())

    key = (topic_id(1), 0, 7, 0)
    for noted, first in ((5, 5), (6, 5), (4, 4), (MAX_SEQUENCE, MAX_SEQUENCE)):
        gaps.note(batch(noted))
        assert gaps.first_sequences == {key: first}
    gaps.close(batch(4))
    assert not gaps.first_sequences

    log.put_producer(7, ProducerState(0))
    gaps.note(batch(0))  # the ledger checks its sequences itself
    assert not gaps.first_sequences
    for producer in (8, 9, 10):
        gaps.note(batch(0, producer))
    assert [producer for _, _, producer, _ in gaps.first_sequences] == [9, 10]


async def test_a_batch_that_timed_out_is_not_stored_again_when_its_object_is_too_old() -> None:
    async with world() as w:
        given_up, waiting = w.add(), w.add()
        await turns()
        given_up.completion.is_done = True
        w.clock.now_ms += 1
        await w.shard.ask(RaiseFloor(NOW_MS + 1), asyncio.get_running_loop().time() + WAIT_S)
        w.segments.may_go.set()
        assert await results(waiting) == [("", 0)]
        assert w.segments.begun == 2
        assert (given_up.base_offset, w.log.high_watermark) == (-1, 1)
