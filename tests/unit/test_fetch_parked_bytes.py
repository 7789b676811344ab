"""A parked fetch adds up what is appended to its partitions: at no more cost than that has, and never too
little."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fetch import planning
from gateway.fetch.budget import NO_OWNER
from gateway.fetch.planning import READ_COMMITTED
from gateway.fetch.readiness import PartitionCount
from gateway.fetch.sessions import SessionPartition
from gateway.scheduling.slices import Slices, SliceScheduler
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.primitives import ZERO_UUID
from ledger.partitions.markers import MARKER_BYTES
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.topics.state import Topics
from ledger.types import TopicId
from tests.support.reading import MIB, PRINCIPAL, batch_of, parts, reading_world, records_of, with_base

WAIT_S = 30.0
KIB = batch_of(b"x" * 1000)
A, B = batch_of(b"a" * 100), batch_of(b"b" * 100)
READ_UNCOMMITTED = 0
LAYERS = 3
"""Of partitions, each as many as are processed at once."""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Indexes of the partitions that are planned."""
    planned, find = list[int](), planning.find_log

    def counting(partition: SessionPartition, topics: Topics) -> PartitionLog | None:
        planned.append(partition.request.index)
        return find(partition, topics)

    monkeypatch.setattr(planning, "find_log", counting)
    return planned


async def parked(waiting: "asyncio.Task[object]") -> None:
    await asyncio.sleep(0.01)
    assert not waiting.done()


async def test_a_partition_is_planned_once_however_often_it_moves(plans: list[int]) -> None:
    async with reading_world() as world:
        await world.create(partitions=2)
        await world.produce(KIB)
        fetch = world.fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=60_000, min_bytes=101 * len(KIB))
        waiting = asyncio.create_task(fetch)
        await parked(waiting)
        plans.clear()
        for number in range(99):
            await world.produce(KIB, partition=number % 2)
            await asyncio.sleep(0)
        await parked(waiting)
        assert sorted(plans) == [0, 1]
        await world.produce(KIB, partition=1)
        fetched = parts(await asyncio.wait_for(waiting, WAIT_S))
        assert [len(records_of(part)) for part in fetched] == [51 * len(KIB), 50 * len(KIB)]


async def test_records_that_are_deleted_while_they_are_waited_for_are_out_of_range_at_once() -> None:
    async with reading_world() as world:
        topic_id = await world.create()
        await world.produce(A)
        waiting = asyncio.create_task(world.one("t", 0, 0, max_wait_ms=60_000, min_bytes=10_000))
        await parked(waiting)
        await world.produce(A)
        await parked(waiting)
        await world.delete_records(topic_id, 0, 1)
        fetched = await asyncio.wait_for(waiting, WAIT_S)
        assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_bytes_beyond_a_partitions_maximum_do_not_count_when_they_are_appended() -> None:
    async with reading_world() as world:
        await world.create(partitions=2)
        requested = [("t", 0, 0, len(A) + 10), ("t", 1, 0)]
        waiting = asyncio.create_task(world.fetch(*requested, max_wait_ms=60_000, min_bytes=3 * len(A)))
        for _ in range(5):
            await world.produce(A)
            await parked(waiting)
        await world.produce(B, B, partition=1)
        fetched = parts(await asyncio.wait_for(waiting, WAIT_S))
        assert [records_of(part) for part in fetched] == [
            with_base(A, 0),
            with_base(B, 0) + with_base(B, 1),
        ]


class _Impatient:
    """A request whose slices end at every check."""

    def __init__(self) -> None:
        ticks = iter(range(1_000_000))
        self.slices = Slices(SliceScheduler(precise=lambda: float(next(ticks))), NO_OWNER)


@pytest.mark.parametrize("iterations", range(24))
async def test_bytes_that_come_while_a_large_fetch_enters_the_purgatory_are_not_missed(
    iterations: int,
) -> None:
    async with reading_world() as world:
        count = LAYERS * 256
        await world.create(partitions=count)
        await world.produce(A, partition=count - 1)
        requested = [FetchPartition(index, -1, 0, -1, -1, MIB) for index in range(count)]
        topic = FetchTopic("t", ZERO_UUID, requested)
        request = FetchRequest(60_000, len(A) + len(B), MIB, READ_UNCOMMITTED, 0, -1, [topic], [])
        now = asyncio.get_running_loop().time()
        fetch = world.fetch_service.fetch(12, request, PRINCIPAL, now, sliced=_Impatient())
        waiting = asyncio.create_task(fetch)
        for _ in range(iterations):
            await asyncio.sleep(0)
        await world.produce(B)
        fetched = await asyncio.wait_for(waiting, WAIT_S)
        got = [records_of(part) for part in parts(fetched.response) if part.records]
        assert got == [with_base(B, 0), with_base(A, 0)]


class _Changing:
    """A partition to which anything happens that may happen while a fetch is parked."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.log = PartitionLog(1, TopicId(bytes(16)), 0)
        self.object_number = self.end = 0
        self.batches = list[tuple[int, int, int]]()
        """(base offset, last offset, size)."""

    def change(self) -> None:
        kind = self.choose.random()
        if kind < 0.65:
            self.append()
        elif kind < 0.75:
            self.object_number, self.end = self.object_number + 1, 0
        elif kind < 0.9 and self.log.isolation.open:
            producer_id = self.choose.choice(list(self.log.isolation.open))
            self.batches.append((self.log.high_watermark, self.log.high_watermark, MARKER_BYTES))
            self.log.mark(producer_id, 0, self.choose.random() < 0.7, 1)
        elif kind < 0.95:
            self.log.log_start = max(self.log.log_start, self.choose.randint(0, self.log.high_watermark // 2))
            self.log.drop(self.log.droppable(2))
        else:
            self.swap()

    def append(self) -> None:
        size, records = self.choose.randint(61, 200), self.choose.randint(1, 3)
        base = self.log.high_watermark
        if self.choose.random() < 0.4:
            self.log.begin_transaction(self.choose.randrange(3), base)
        self.log.append(self.object_number, self.end, size, base, base + records - 1, 1)
        self.batches.append((base, base + records - 1, size))
        self.end += size

    def swap(self) -> None:
        """Two runs become one: by a job, or as batches that were inside of journal entries, which does not
        count as a layout."""
        runs = list(self.log.runs())
        if len(runs) < 2:
            return
        at = self.choose.randrange(len(runs) - 1)
        one, other = runs[at : at + 2]
        span = self.log.span(one.base, other.last)
        if span is not None:
            joined = Run(one.base, other.last, 1_000, 0, one.size + other.size, 1, dense=False)
            self.log.replace(span, [joined])
            self.log.layout_version += self.choose.choice([0, 1])

    def available(self, offset: int, isolation: int, max_bytes: int) -> int:
        log = self.log
        bound = log.last_stable if isolation == READ_COMMITTED else log.high_watermark
        sizes = [
            size for base, last, size in self.batches if last >= offset and base < bound and offset < bound
        ]
        return min(sum(sizes), max_bytes)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    before=st.integers(0, 20),
    isolation=st.sampled_from([READ_UNCOMMITTED, READ_COMMITTED]),
    max_bytes=st.sampled_from([61, 1_000, MIB]),
    at_once=st.integers(1, 4),
)
def test_what_is_counted_is_never_less_than_what_there_is(
    seed: int, before: int, isolation: int, max_bytes: int, at_once: int
) -> None:
    partition = _Changing(seed)
    log = partition.log
    for _ in range(before):
        partition.change()
    offset = partition.choose.randint(log.log_start, log.high_watermark)
    available = partition.available(offset, isolation, max_bytes)
    count = PartitionCount(log, offset, isolation, max_bytes, available)
    for _ in range(40):
        for _ in range(at_once):
            partition.change()
        if not count.holds(log):
            return
        available, counted = partition.available(offset, isolation, max_bytes), count.update()
        assert available <= counted <= max_bytes
        if isolation == READ_UNCOMMITTED:
            assert counted == available
