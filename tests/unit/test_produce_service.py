"""Drafts are stored, committed in order and completed, over real stores that are held or fail."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.coordination.shard import Shard
from gateway.produce.accumulator import PendingBatch
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from gateway.telemetry.logs import QuietLog
from ledger.batch.header import CheckedBatch, Codec, read_header
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.errors import StoreUnavailable
from ledger.objects.records import FloorRaised
from ledger.objects.requests import RaiseFloor
from ledger.objects.uploads import Upload, Uploader
from ledger.partitions.requests import CommitFile
from ledger.partitions.state import PartitionLog
from ledger.ports import AppendOutcome, Capabilities, SegmentStore
from ledger.records import FIRST_LEVEL
from ledger.registry import REGISTRY
from ledger.requests import LedgerResult, Request
from ledger.topics.requests import CreateTopic
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject
from tests.support.completions import AwaitedProduce
from tests.support.faulty import Fault, Faults, FaultyMetadata, FaultySegments
from tests.support.journalled import topic_id
from tests.support.shards import open_shard

WAIT_S = 20.0
NOW_MS = 1_000_000
POLICY = TopicPolicy(1 << 20)
RECODED = TopicPolicy(1 << 20, codec=Codec.GZIP)
"""Every batch must be decompressed."""


class HeldSegments:
    """A SegmentStore whose writes wait while it is held; it counts the drafts written and abandoned."""

    capabilities = Capabilities(deletes=True, atomic=True, durable_ack=False, overlapping=True)

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._may_go = asyncio.Event()
        self._may_go.set()
        self.drafts: list[list[bytes]] = []
        self.created_ms: list[int] = []
        self.abandoned: list[str] = []

    def hold(self) -> None:
        self._may_go.clear()

    def release(self) -> None:
        self._may_go.set()

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        self.drafts.append([bytes(batch.data) for batch in batches])
        self.created_ms.append(created_ms)
        await self._may_go.wait()
        return await self._store.write(batches, created_ms, feature_level)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._store.read(positions)

    async def abandon(self, locator: str) -> None:
        self.abandoned.append(locator)
        await self._store.abandon(locator)

    async def delete(self, locators: Sequence[str]) -> None:
        await self._store.delete(locators)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._store.objects(after, limit)

    async def close(self) -> None:
        await self._store.close()


@dataclass
class Produce:
    """A produce service, its shard and its store, and the batches that it put into the cache."""

    service: ProduceService
    shard: Shard
    segments: HeldSegments
    stored: list[tuple[str, int, bytes]] = field(default_factory=list)

    def log(self, partition: int = 0) -> PartitionLog:
        return self.shard.state.topics.by_name["t"].partitions[partition]

    def send(self, *batches: bytes, partition: int = 0) -> tuple[list[PendingBatch], AwaitedProduce]:
        """One request of one partition's batches."""
        completion = AwaitedProduce()
        completion.remaining += 1
        pending = [
            self.service.add(self.log(partition), checked(batch), completion, POLICY) for batch in batches
        ]
        completion.count_down()
        return pending, completion

    async def results(self, *batches: bytes, partition: int = 0) -> list[int | str]:
        pending, completion = self.send(*batches, partition=partition)
        return await results(pending, completion)

    async def bytes_at(self, offset: int, partition: int = 0) -> bytes:
        run = self.log(partition).find(offset, 1)[0]
        where = self.shard.state.objects.locator(run.object_number)
        (data,) = await self.segments.read([Position(where, run.start, run.size)])
        assert data is not None
        return bytes(data)


async def results(pending: list[PendingBatch], completion: AwaitedProduce) -> list[int | str]:
    """The base offset of each batch, or the name of its error."""
    async with asyncio.timeout(WAIT_S):
        await completion.completed
    return [batch.error or batch.base_offset for batch in pending]


def checked(batch: bytes) -> CheckedBatch:
    return CheckedBatch(read_header(memoryview(batch)), memoryview(batch))


def batch_of(text: str, count: int = 1, producer: Producer = NO_PRODUCER, stamp: int = 7) -> bytes:
    records = [Record(offset_delta=n, value=f"{text}{n}".encode()) for n in range(count)]
    return build_batch(records, base_timestamp=stamp, producer=producer)


class Noted:
    """What would be put into a cache."""

    def __init__(self, stored: list[tuple[str, int, bytes]]) -> None:
        self._stored = stored

    def put(self, locator: str, start: int, data: Buffer) -> None:
        self._stored.append((locator, start, bytes(data)))

    def discard_written(self, locator: str, start: int) -> None:
        self._stored[:] = [one for one in self._stored if one[:2] != (locator, start)]


class Opening:
    """Makes services, and closes them in the end."""

    def __init__(self) -> None:
        self.made: list[Produce] = []

    async def __call__(
        self,
        segment_faults: Faults | None = None,
        metadata_faults: Faults | None = None,
        *,
        options: ProduceOptions | None = None,
        overlapping: bool = True,
        feature_level: int = 0,
    ) -> Produce:
        metadata = FaultyMetadata(MemoryMetadata(), metadata_faults or Faults())
        shard = await open_shard(metadata, None, None, 1, lambda: NOW_MS, feature_level=feature_level)
        deadline = asyncio.get_running_loop().time() + WAIT_S
        await shard.ask(CreateTopic("t", topic_id(1), 3, {}), deadline)
        segments = HeldSegments(FaultySegments(MemorySegments(), segment_faults or Faults()))
        segments.capabilities = replace(HeldSegments.capabilities, overlapping=overlapping)
        stored: list[tuple[str, int, bytes]] = []
        service = ProduceService(
            shard,
            segments,
            options or ProduceOptions(1 << 20, 1000, 3),
            lambda: NOW_MS,
            written=Noted(stored),
        )
        self.made.append(Produce(service, shard, segments, stored))
        return self.made[-1]


@pytest.fixture
async def opening() -> AsyncIterator[Opening]:
    made = Opening()
    yield made
    for produce in made.made:
        await produce.service.close(0)
        await produce.shard.close()


@contextmanager
def held_journal(shard: Shard) -> Iterator[asyncio.Event]:
    """Appends wait until the event is set."""
    may_go, append = asyncio.Event(), shard.journal.append

    async def held(number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        await may_go.wait()
        return await append(number, entry, batches)

    shard.journal.append = held  # type: ignore[method-assign]
    try:
        yield may_go
    finally:
        may_go.set()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("feature_level", [1, 2])
async def test_results_of_drafts_that_are_settled_are_not_kept_for_repeats(
    opening: Opening, feature_level: int
) -> None:
    options = ProduceOptions(1 << 20, 1, 3, uploader=Uploader(1, b"a" * 16))
    produce = await opening(options=options, feature_level=feature_level)
    for number in range(30):
        assert await produce.results(batch_of(f"{number}")) == [number]
    kept = [len(stored.starts) for stored in produce.shard.state.objects.by_number.values()]
    # The last draft is settled by the commit of the next.
    assert kept == [1] * 30 if feature_level == 1 else [0] * 29 + [1]


async def test_each_commit_names_its_draft_and_up_to_which_all_are_settled(
    opening: Opening,
) -> None:
    produce = await opening(options=ProduceOptions(1 << 20, 1, 3, uploader=Uploader(1, b"a" * 16)))
    uploads: list[Upload | None] = []
    submit = produce.shard.submit

    def noted(request: Request) -> asyncio.Future[LedgerResult]:
        if isinstance(request, CommitFile):
            uploads.append(request.upload)
        return submit(request)

    produce.service._shard.submit = noted  # type: ignore[method-assign]
    sent = [produce.send(batch_of("a" * n)) for n in (1, 2, 3)]
    assert [await results(*one) for one in sent] == [[0], [1], [2]]
    await produce.results(batch_of("x"))
    named = [(each.draft, each.settled) for each in uploads if each is not None]
    assert [draft for draft, _ in named] == [1, 2, 3, 4]
    assert all(settled < draft for draft, settled in named) and named[-1] == (4, 3)


async def test_a_batch_is_stored_as_it_was_sent_and_found_at_its_offset(opening: Opening) -> None:
    produce = await opening()
    first, second = batch_of("first", 3), batch_of("second", 2)
    assert await produce.results(first) == [0]
    assert await produce.results(second) == [3]
    assert await produce.bytes_at(0) == first
    assert await produce.bytes_at(4) == second
    assert [data for _, _, data in produce.stored] == [first, second]


async def test_requests_that_arrive_together_share_a_draft_grouped_by_partition(opening: Opening) -> None:
    produce = await opening()
    sent = [produce.send(batch_of(f"{n}"), partition=n % 2) for n in range(6)]
    assert [await results(*one) for one in sent] == [[0], [0], [1], [1], [2], [2]]
    assert produce.segments.drafts == [[batch_of(f"{n}") for n in (0, 2, 4, 1, 3, 5)]]
    assert [log.run_count for log in (produce.log(0), produce.log(1))] == [1, 1]


async def test_batches_gather_while_a_draft_is_written(opening: Opening) -> None:
    produce = await opening()
    produce.segments.hold()
    sent = [produce.send(batch_of("0"))]
    await turns()
    sent += [produce.send(batch_of(f"{n}")) for n in range(1, 10)]
    await turns()
    assert len(produce.segments.drafts) == 1
    produce.segments.release()
    assert [await results(*one) for one in sent] == [[n] for n in range(10)]
    assert [len(draft) for draft in produce.segments.drafts] == [1, 9]


async def test_over_a_far_store_batches_do_not_gather_while_a_draft_waits_for_its_commit(
    opening: Opening,
) -> None:
    produce = await opening()
    with held_journal(produce.shard) as may_go:
        sent = [produce.send(batch_of("0"))]
        await turns()
        sent.append(produce.send(batch_of("1")))
        await turns()
        assert len(produce.segments.drafts) == 2
        may_go.set()
        assert [await results(*one) for one in sent] == [[0], [1]]


async def test_over_one_disk_batches_gather_until_the_draft_before_is_committed(opening: Opening) -> None:
    produce = await opening(options=ProduceOptions(1 << 20, 5, 3), overlapping=False)
    with held_journal(produce.shard) as may_go:
        sent = [produce.send(batch_of("0"))]
        await turns()
        for n in range(1, 9):
            sent.append(produce.send(batch_of(f"{n}")))
            await turns()
        assert [len(draft) for draft in produce.segments.drafts] == [1, 5]  # a full one does not wait
        may_go.set()
        assert [await results(*one) for one in sent] == [[n] for n in range(9)]
    assert [len(draft) for draft in produce.segments.drafts] == [1, 5, 3]


async def test_a_full_draft_is_written_next_to_the_one_under_way(opening: Opening) -> None:
    produce = await opening(options=ProduceOptions(1 << 20, 4, 3))
    produce.segments.hold()
    sent = [produce.send(batch_of("0"))]
    await turns()
    for n in range(1, 30):
        sent.append(produce.send(batch_of(f"{n}")))
        await turns(3)
    assert [len(draft) for draft in produce.segments.drafts] == [1, 4, 4]  # three in flight are the most
    produce.segments.release()
    assert [await results(*one) for one in sent] == [[n] for n in range(30)]
    assert max(len(draft) for draft in produce.segments.drafts) == 4


async def test_a_draft_holds_at_most_its_bytes(opening: Opening) -> None:
    size = len(batch_of("00"))
    produce = await opening(options=ProduceOptions(size * 3 + 1, 1000, 1))
    sent = [produce.send(batch_of(f"{n:02}")) for n in range(10)]
    assert [await results(*one) for one in sent] == [[n] for n in range(10)]
    assert [len(draft) for draft in produce.segments.drafts] == [3, 3, 3, 1]


async def test_a_batch_larger_than_a_draft_is_stored_alone(opening: Opening) -> None:
    produce = await opening(options=ProduceOptions(100, 1000, 1))
    large = batch_of("x" * 500)
    sent = [produce.send(batch_of("0")), produce.send(large), produce.send(batch_of("1"))]
    assert [await results(*one) for one in sent] == [[0], [1], [2]]
    assert await produce.bytes_at(1) == large


async def test_drafts_are_committed_in_order_although_a_later_one_is_stored_first(opening: Opening) -> None:
    produce = await opening(options=ProduceOptions(1 << 20, 1, 3))
    sizes: list[int] = []
    inner, write = produce.segments, produce.segments.write

    async def slow_first(batches: Sequence[DraftBatch], created_ms: int, feature_level: int = 1) -> Placement:
        placed = await write(batches, created_ms, feature_level)
        if len(inner.drafts) == 1:
            await turns(50)
        sizes.append(len(batches[0].data))
        return placed

    inner.write = slow_first  # type: ignore[method-assign]
    sent = [produce.send(batch_of("a" * n, producer=Producer(5, 0, n))) for n in range(3)]
    assert [await results(*one) for one in sent] == [[0], [1], [2]]
    assert sizes != sorted(sizes)


async def test_a_refusal_of_one_batch_affects_no_other(opening: Opening) -> None:
    produce = await opening()
    sent = [
        produce.send(batch_of("a", 2, Producer(5, 0, 0))),
        produce.send(batch_of("b", 1, Producer(5, 0, 7))),
        produce.send(batch_of("c", 1, Producer(6, 0, 0))),
        produce.send(batch_of("d", 1, Producer(5, 0, 2))),
        produce.send(batch_of("a", 2, Producer(5, 0, 0))),
    ]
    assert [await results(*one) for one in sent] == [[0], ["OUT_OF_ORDER_SEQUENCE_NUMBER"], [2], [3], [0]]
    assert produce.log().high_watermark == 4
    # The cache gets all that was written: it must have the batches before their entry is applied.
    assert len(produce.stored) == 5


async def test_a_draft_that_could_not_be_stored_fails_for_certain_and_the_next_continues(
    opening: Opening,
) -> None:
    produce = await opening(Faults(1, Fault.ERROR_BEFORE, only=["write"]))
    assert await produce.results(batch_of("lost")) == ["KAFKA_STORAGE_ERROR"]
    assert await produce.results(batch_of("kept")) == [0]
    assert await produce.bytes_at(0) == batch_of("kept")


async def test_a_draft_that_could_not_be_stored_lets_no_other_overtake_those_before_it(
    opening: Opening,
) -> None:
    produce = await opening(
        Faults(3, Fault.ERROR_BEFORE, only=["write"]), options=ProduceOptions(1 << 20, 1, 4)
    )
    with held_journal(produce.shard) as may_go:
        sent = []
        for text in ("first", "second", "lost", "last"):
            sent.append(produce.send(batch_of(text)))
            await turns()
        may_go.set()
        assert [await results(*one) for one in sent] == [[0], [1], ["KAFKA_STORAGE_ERROR"], [2]]


async def test_a_store_that_fails_for_long_is_logged_in_few_lines(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.produce.service.quiet", QuietLog())
    produce = await opening(Faults(1, Fault.ERROR_BEFORE, times=50, only=["write"]))
    with capture_logs() as events:
        for _ in range(50):
            assert await produce.results(batch_of("lost")) == ["KAFKA_STORAGE_ERROR"]
    assert [event["event"] for event in events if event["log_level"] == "error"] == ["produce.storage_failed"]


async def test_a_commit_that_failed_for_certain_abandons_its_object_and_is_not_seen(opening: Opening) -> None:
    # Puts: the epoch, the topic, then this commit.
    produce = await opening(metadata_faults=Faults(3, Fault.ERROR_BEFORE, only=["put"]))
    assert await produce.results(batch_of("lost")) == ["KAFKA_STORAGE_ERROR"]
    assert len(produce.segments.abandoned) == 1
    assert await produce.results(batch_of("kept")) == [0]
    assert produce.log().high_watermark == 1


async def test_a_commit_of_unknown_outcome_has_that_result(opening: Opening) -> None:
    produce = await opening(metadata_faults=Faults(3, Fault.NEVER_SENT, times=1 << 20, only=["put"]))
    pending, completion = produce.send(batch_of("unknown"))
    await asyncio.sleep(0.05)
    assert not completion.completed.done()
    await produce.shard.close()
    assert await results(pending, completion) == ["REQUEST_TIMED_OUT"]


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
async def test_a_commit_of_unknown_outcome_stays_unknown_although_its_object_cannot_be_abandoned(
    opening: Opening, fault: Fault
) -> None:
    produce = await opening(
        Faults(1, fault, only=["abandon"]), Faults(3, Fault.NEVER_SENT, times=1 << 20, only=["put"])
    )
    pending, completion = produce.send(batch_of("unknown"))
    await asyncio.sleep(0.05)
    await produce.shard.close()
    assert await results(pending, completion) == ["REQUEST_TIMED_OUT"]


async def test_a_commit_that_failed_for_certain_stays_so_although_its_object_cannot_be_abandoned(
    opening: Opening,
) -> None:
    produce = await opening(
        Faults(1, Fault.ERROR_AFTER, only=["abandon"]), Faults(3, Fault.ERROR_BEFORE, only=["put"])
    )
    assert await produce.results(batch_of("lost")) == ["KAFKA_STORAGE_ERROR"]


async def test_a_draft_whose_object_became_too_old_is_stored_again_under_a_new_key(opening: Opening) -> None:
    produce = await opening()
    produce.segments.hold()
    pending, completion = produce.send(batch_of("old"))
    await turns()
    deadline = asyncio.get_running_loop().time() + WAIT_S
    produce.shard.replica.clock = lambda: NOW_MS + 5
    await produce.shard.ask(RaiseFloor(NOW_MS + 1), deadline)
    await produce.shard.ask(CreateTopic("later", topic_id(2), 1, {}), deadline)
    produce.segments.release()
    assert await results(pending, completion) == [0]
    assert produce.segments.drafts == [[batch_of("old")]] * 2
    assert len(produce.segments.abandoned) == 1
    # The service's own clock is slow; the newest entry's time makes the key young enough.
    assert produce.segments.created_ms == [NOW_MS, NOW_MS + 5]
    assert await produce.bytes_at(0) == batch_of("old")


async def test_a_draft_that_is_too_old_again_and_again_fails_in_the_end(opening: Opening) -> None:
    produce = await opening()
    # A journal may hold such a floor from when it was not bounded by the time of its entry.
    REGISTRY.apply(produce.shard.state, FloorRaised(NOW_MS + 1))
    assert await produce.results(batch_of("old")) == ["KAFKA_STORAGE_ERROR"]
    assert len(produce.segments.drafts) == 3


async def test_a_batch_whose_request_is_done_is_not_stored(opening: Opening) -> None:
    produce = await opening()
    produce.segments.hold()
    first = produce.send(batch_of("first"))
    await turns()
    _, completion = produce.send(batch_of("given up"))
    kept = produce.send(batch_of("kept"))
    completion.is_done = True
    produce.segments.release()
    assert [await results(*one) for one in (first, kept)] == [[0], [1]]
    assert produce.segments.drafts == [[batch_of("first")], [batch_of("kept")]]


async def test_log_append_time_is_stamped_in_the_stored_bytes(opening: Opening) -> None:
    produce = await opening()
    completion = AwaitedProduce()
    pending = produce.service.add(
        produce.log(), checked(batch_of("x")), completion, TopicPolicy(1 << 20, log_append_time=True)
    )
    assert await results([pending], completion) == [0]
    header = read_header(memoryview(await produce.bytes_at(0)))
    assert (header.max_timestamp, header.timestamp_type, pending.append_time_ms) == (NOW_MS, 1, NOW_MS)
    assert produce.log().find_time(NOW_MS) is not None


# Closing


async def test_closing_stores_accepted_batches(opening: Opening) -> None:
    produce = await opening(options=ProduceOptions(1 << 20, 2, 2))
    sent = [produce.send(batch_of(f"{n}")) for n in range(7)]
    await turns(1)
    await produce.service.close(WAIT_S)
    assert [await results(*one) for one in sent] == [[n] for n in range(7)]


async def test_a_closed_service_accepts_no_batches(opening: Opening) -> None:
    produce = await opening()
    await produce.service.close(WAIT_S)
    assert await produce.results(batch_of("late")) == ["KAFKA_STORAGE_ERROR"]
    assert not produce.segments.drafts


async def test_batches_that_are_not_stored_in_time_get_a_result_and_no_draft_lives_on(
    opening: Opening,
) -> None:
    produce = await opening(options=ProduceOptions(1 << 20, 2, 2))
    produce.segments.hold()
    sent = []
    for n in range(7):
        sent.append(produce.send(batch_of(f"{n}")))
        await turns(3)
    tasks = asyncio.all_tasks()
    await produce.service.close(0.02)
    assert [await results(*one) for one in sent] == [["REQUEST_TIMED_OUT"]] * 3 + [
        ["KAFKA_STORAGE_ERROR"]
    ] * 4
    produce.segments.release()
    await turns()
    assert len(produce.segments.drafts) == 2
    assert asyncio.all_tasks() <= tasks
    assert produce.log().high_watermark == 0


async def test_closing_at_once_completes_a_draft_that_has_not_begun(opening: Opening) -> None:
    produce = await opening()
    pending, completion = produce.send(batch_of("x"))
    produce.service._write_next()  # its task is made, and not yet run
    await produce.service.close(0)
    assert await results(pending, completion) == ["REQUEST_TIMED_OUT"]


async def test_closing_at_once_completes_a_batch_that_was_to_be_validated(opening: Opening) -> None:
    produce = await opening()
    completion = AwaitedProduce()
    policy = replace(POLICY, keys_required=True)
    pending = [
        produce.service.add(produce.log(), checked(batch_of(f"{n}")), completion, policy) for n in range(2)
    ]
    await produce.service.close(0)
    assert await results(pending, completion) == ["KAFKA_STORAGE_ERROR"] * 2


async def test_a_store_that_raises_an_unexpected_error_fails_its_draft_alone(opening: Opening) -> None:
    produce = await opening()
    write = produce.segments.write

    async def broken(batches: Sequence[DraftBatch], created_ms: int, feature_level: int = 1) -> Placement:
        produce.segments.write = write  # type: ignore[method-assign]
        raise ZeroDivisionError

    produce.segments.write = broken  # type: ignore[method-assign]
    assert await produce.results(batch_of("x")) == ["UNKNOWN_SERVER_ERROR"]
    assert await produce.results(batch_of("y")) == [0]


async def test_a_shard_that_was_lost_fails_later_batches_for_certain(opening: Opening) -> None:
    produce = await opening()
    produce.shard.owner.broken = StoreUnavailable("lost")
    assert await produce.results(batch_of("x")) == ["KAFKA_STORAGE_ERROR"]


async def test_a_batch_that_is_not_validated_when_its_client_leaves_is_dropped_and_may_be_sent_again(
    opening: Opening,
) -> None:
    produce = await opening()
    gone = GoneProduce()
    dropped = [
        produce.service.add(produce.log(), checked(batch_of("x", producer=Producer(7, 0, n))), gone, RECODED)
        for n in range(2)
    ]
    await gone.completed
    assert [batch.base_offset for batch in dropped] == [-1, -1]
    pending, completion = produce.send(batch_of("y", producer=Producer(7, 0, 1)))
    assert await results(pending, completion) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    pending, completion = produce.send(batch_of("x", producer=Producer(7, 0, 0)))
    assert await results(pending, completion) == [0]


async def test_batches_of_a_connection_and_topic_that_wait_for_validation_are_bounded(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.produce.validation_queues.MAX_QUEUED", 3)
    produce = await opening()
    completion, other = AwaitedProduce(), AwaitedProduce()
    other.sender = (2, "127.0.0.1")
    batches = [
        produce.service.add(produce.log(n % 2), checked(batch_of("x")), completion, RECODED) for n in range(5)
    ]
    elsewhere = produce.service.add(produce.log(), checked(batch_of("x")), other, RECODED)
    await asyncio.gather(completion.completed, other.completed)
    assert [batch.error or "" for batch in batches] == [
        "",
        "",
        "",
        "KAFKA_STORAGE_ERROR",
        "KAFKA_STORAGE_ERROR",
    ]
    assert elsewhere.error is None
    again = AwaitedProduce()
    assert not produce.service.add(produce.log(), checked(batch_of("x")), again, RECODED).error
    await again.completed


async def test_after_a_batch_that_could_not_be_validated_none_of_its_producer_is_stored(
    opening: Opening,
) -> None:
    produce = await opening()
    opener, failures = produce.service._opener, [RuntimeError("a bug")]
    run = opener.run

    async def fails_once(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        await run(*arguments)

    opener.run = fails_once  # type: ignore[method-assign, assignment]

    def add(producer_id: int, sequence: int) -> tuple[list[PendingBatch], AwaitedProduce]:
        completion = AwaitedProduce()
        batch = checked(batch_of("x", producer=Producer(producer_id, 0, sequence)))
        return [produce.service.add(produce.log(), batch, completion, RECODED)], completion

    sent = [add(7, 0), add(7, 1), add(8, 0)]
    assert [await results(*one) for one in sent] == [
        ["UNKNOWN_SERVER_ERROR"],
        ["OUT_OF_ORDER_SEQUENCE_NUMBER"],
        [0],
    ]
    # Also what comes later, and until the first comes again.
    assert await results(*add(7, 2)) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert [await results(*add(7, sequence)) for sequence in (0, 1)] == [[1], [2]]


class GoneProduce(AwaitedProduce):
    """Its client left."""

    def wants_result(self) -> bool:
        return False
