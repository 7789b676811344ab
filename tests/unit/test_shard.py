"""The driver of a shard over real metadata stores: group commit, unknown outcomes, limits, the end."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from adapters.journals.metadata import entry_prefix
from adapters.metadata.memory import MemoryMetadata
from adapters.metadata.sqlite import SqliteMetadata
from gateway.coordination import owner as owner_module
from gateway.coordination.shard import Shard
from ledger.cluster.apply import OWNERS
from ledger.errors import ErrorName, OutcomeUnknown, StoreUnavailable
from ledger.groups.records import OffsetsCommitted
from ledger.groups.requests import CommitOffsets, OffsetsStored
from ledger.groups.state import OffsetRow
from ledger.image import all_rows
from ledger.journal import GROUP_COMMIT_BATCHES, MAX_ENTRY_BYTES, Entry, decode_entry
from ledger.partitions.records import FileCommitted, ProducerIdsReserved
from ledger.partitions.requests import (
    CommitFile,
    Committed,
    DeleteRecords,
    FileCommit,
    Reserved,
    ReserveProducerIds,
)
from ledger.partitions.state import PartitionLog
from ledger.ports import MetadataStore
from ledger.requests import LedgerResult, Refused, Request
from ledger.rows import META, Row, digest
from ledger.state import LedgerState
from ledger.topics.requests import Created, CreateTopic, DeleteTopic
from tests.support.faulty import EVERY_FAULT, Fault, Faults, FaultyMetadata
from tests.support.held_stores import HeldMetadata
from tests.support.journalled import batches_in_order, locator, topic_id
from tests.support.shards import open_shard

WAIT_S = 20.0
NOW_MS = 1_000_000


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened = MemoryMetadata() if request.param == "memory" else SqliteMetadata(tmp_path / "metadata")
    yield opened
    await opened.close()


@pytest.fixture
async def opened(store: MetadataStore) -> AsyncIterator[Callable[[MetadataStore], "Opening"]]:
    """Opens shards over a wrapper of the store, and closes them in the end."""
    shards: list[Shard] = []
    yield lambda wrapped: Opening(wrapped, shards)
    for shard in shards:
        await shard.close()


class Opening:
    def __init__(self, store: MetadataStore, shards: list[Shard]) -> None:
        self.store = store
        self.shards = shards

    async def shard(self, clock: Callable[[], int] = lambda: NOW_MS) -> Shard:
        self.shards.append(await open_shard(self.store, None, None, 1, clock))
        return self.shards[-1]


Opener = Callable[[MetadataStore], Opening]


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


async def ask(shard: Shard, request: Request) -> LedgerResult:
    return await shard.ask(request, deadline())


async def turns(count: int = 20) -> None:
    """Let every task that can run do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def results_of(futures: Sequence[asyncio.Future[LedgerResult]]) -> list[LedgerResult | BaseException]:
    async with asyncio.timeout(WAIT_S):
        return await asyncio.gather(*futures, return_exceptions=True)


async def entries_in(store: MetadataStore) -> list[Entry]:
    found = await store.scan(entry_prefix(0))
    return [decode_entry(versioned.value, key) for key, versioned in found]


def create(number: int) -> CreateTopic:
    return CreateTopic(f"t{number}", topic_id(number), 1, {})


# Group commit and durability


async def test_requests_that_wait_while_an_entry_is_written_share_the_next(
    store: MetadataStore, opened: Opener
) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    held.hold()
    first = shard.submit(create(0))
    await turns()
    others = [shard.submit(create(number)) for number in range(1, 50)]
    await turns()
    assert len(held.put_keys) == 2  # the epoch's first entry, and the first request alone
    held.release()
    assert await results_of([first, *others]) == [Created(topic_id(number)) for number in range(50)]
    assert [len(entry.records) for entry in await entries_in(store)] == [3, 1, 49]
    assert shard.state.applied == 3


async def test_requests_are_decided_in_the_order_in_which_they_came(
    store: MetadataStore, opened: Opener
) -> None:
    shard = await opened(store).shard()
    futures = [shard.submit(ReserveProducerIds(1 + number % 3)) for number in range(30)]
    starts = itertools.accumulate((1 + number % 3 for number in range(30)), initial=0)
    assert await results_of(futures) == [
        Reserved(start, 1 + number % 3) for number, start in zip(range(30), starts, strict=False)
    ]


async def test_no_result_is_returned_and_nothing_is_visible_before_the_entry_is_durable(
    store: MetadataStore, opened: Opener
) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    await ask(shard, create(0))
    # Some request has named its partition, and may wait for it.
    assert shard.state.topics.by_id[topic_id(0)].partitions[0].high_watermark == 0
    returned: list[list[str]] = []
    shard.subscribe(lambda _: returned.append(list(shard.state.topics.by_name)))
    held.hold()
    made = shard.submit(create(1))
    refused = shard.submit(create(1))
    gone = shard.submit(DeleteTopic(topic_id(0)))
    await turns()
    assert not (made.done() or refused.done() or gone.done())
    assert list(shard.state.topics.by_name) == ["t0"] and not returned
    held.release()
    results = await results_of([made, refused, gone])
    assert isinstance(results[1], Refused) and results[1].error == "TOPIC_ALREADY_EXISTS"
    assert list(shard.state.topics.by_name) == ["t1"] and returned == [["t1"]]


async def test_a_request_that_was_cancelled_before_it_was_decided_is_left_out(
    store: MetadataStore, opened: Opener
) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    held.hold()
    first = shard.submit(create(0))
    await turns()
    with pytest.raises(TimeoutError):
        await shard.ask(create(1), asyncio.get_running_loop().time() + 0.01)
    kept = shard.submit(create(2))
    held.release()
    await results_of([first, kept])
    assert sorted(shard.state.topics.by_name) == ["t0", "t2"]


async def test_a_request_that_was_cancelled_afterwards_is_in_the_journal(
    store: MetadataStore, opened: Opener
) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    held.hold()
    with pytest.raises(TimeoutError):
        await shard.ask(create(1), asyncio.get_running_loop().time() + 0.01)
    held.release()
    assert isinstance(await ask(shard, create(1)), Refused)


async def test_refusals_alone_write_no_entry(store: MetadataStore, opened: Opener) -> None:
    shard = await opened(store).shard()
    for _ in range(3):
        assert await ask(shard, DeleteTopic(topic_id(7))) == Refused(ErrorName.UNKNOWN_TOPIC_ID)
    assert len(await entries_in(store)) == 1


async def test_subscribers_are_called_with_the_partitions_that_an_entry_touched(
    store: MetadataStore, opened: Opener
) -> None:
    shard = await opened(store).shard()
    await ask(shard, CreateTopic("t", topic_id(1), 3, {}))
    returned: list[list[tuple[int, int, int, bool]]] = []

    def take(logs: Sequence[PartitionLog]) -> None:
        returned.append([(log.index, log.high_watermark, log.log_start, log.deleted) for log in logs])

    undo = shard.subscribe(take)
    batches = batches_in_order(topic_id(1), 2, [4])
    await ask(shard, CommitFile(locator(1, NOW_MS), 100, batches))
    await ask(shard, ReserveProducerIds(1))
    await ask(shard, DeleteRecords(topic_id(1), 2, 3))
    undo()
    await ask(shard, DeleteTopic(topic_id(1)))
    assert returned == [[(2, 4, 0, False)], [(2, 4, 3, False)]]


# Outcomes


UNKNOWNS = [(fault, 1) for fault in EVERY_FAULT if fault is not Fault.ERROR_BEFORE]
UNKNOWNS += [(Fault.LATE, late_by) for late_by in (2, 3, 4)]


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize(("fault", "late_by"), UNKNOWNS)
async def test_an_append_of_unknown_outcome_becomes_one_entry_and_its_right_results(
    store: MetadataStore, opened: Opener, fault: Fault, times: int, late_by: int
) -> None:
    # Calls: the start is read, the epoch begun; then this one's put and its readings back.
    faults = Faults(3, fault, times=times, late_by=late_by, only=["metadata.put", "metadata.get"])
    wrapped = FaultyMetadata(store, faults)
    shard = await opened(wrapped).shard()
    assert await ask(shard, ReserveProducerIds(5)) == Reserved(0, 5)
    assert faults.failed[0].method == "put"
    await faults.arrive()
    assert await ask(shard, ReserveProducerIds(5)) == Reserved(5, 5)
    entries = await entries_in(store)
    assert [entry.records[-1] for entry in entries[1:]] == [ProducerIdsReserved(5), ProducerIdsReserved(10)]
    assert shard.state.applied == len(entries) == 3


async def test_an_entry_that_was_certainly_not_written_fails_alone_and_the_shard_continues(
    store: MetadataStore, opened: Opener
) -> None:
    held = HeldMetadata(FaultyMetadata(store, Faults(2, Fault.ERROR_BEFORE, only=["put"])))
    shard = await opened(held).shard()
    held.hold()
    failing = [shard.submit(create(0))]
    await turns()
    waiting = [shard.submit(create(number)) for number in (0, 1)]
    held.release()
    assert [type(result) for result in await results_of(failing)] == [StoreUnavailable]
    assert await results_of(waiting) == [Created(topic_id(0)), Created(topic_id(1))]
    assert shard.broken is None and not shard.lost.is_set()
    assert [len(entry.records) for entry in await entries_in(store)] == [3, 2]


async def test_a_certain_failure_after_an_unknown_outcome_is_not_certain(
    store: MetadataStore, opened: Opener
) -> None:
    """The first attempt may still arrive: the same bytes go out until the journal says what happened."""
    second = FaultyMetadata(store, Faults(2, Fault.ERROR_BEFORE, times=3, only=["put"]))
    first = Faults(2, Fault.LATE, late_by=4, only=["put"])
    shard = await opened(FaultyMetadata(second, first)).shard()
    assert await ask(shard, ReserveProducerIds(5)) == Reserved(0, 5)
    assert len(first.calls) > 3
    await first.arrive()
    assert [entry.records[-1] for entry in await entries_in(store)][1:] == [ProducerIdsReserved(5)]


@pytest.mark.parametrize("fault", EVERY_FAULT)
async def test_after_any_fault_the_journal_reads_back_as_the_state_that_returned_the_results(
    store: MetadataStore, opened: Opener, fault: Fault
) -> None:
    faults = Faults(5, fault, times=4)
    shard = await opened(FaultyMetadata(store, faults)).shard()
    results = [await results_of([shard.submit(create(number))]) for number in range(6)]
    assert faults.failed
    made = [f"t{number}" for number, result in enumerate(results) if result == [Created(topic_id(number))]]
    assert list(shard.state.topics.by_name) == made and len(made) >= 2
    await shard.close()
    before = digest(but_epochs(shard.state))
    again = await opened(store).shard()
    assert digest(but_epochs(again.state)) == before


def but_epochs(state: LedgerState) -> list[Row]:
    """What a restart leaves as it is."""
    return [row for row in all_rows(state) if row.section not in (META, OWNERS)]


# Time and limits


async def test_the_time_of_entries_never_goes_back_when_the_clock_does(
    store: MetadataStore, opened: Opener
) -> None:
    times = iter([NOW_MS, NOW_MS + 50, NOW_MS - 9_000, NOW_MS + 20, NOW_MS + 51])
    shard = await opened(store).shard(lambda: next(times))
    for number in range(4):
        await ask(shard, create(number))
    assert [entry.time_ms - NOW_MS for entry in await entries_in(store)] == [0, 50, 50, 50, 51]
    assert [topic.created_ms - NOW_MS for topic in shard.state.topics.by_name.values()] == [50, 50, 50, 51]
    await shard.close()
    later = await opened(store).shard(lambda: NOW_MS - 1_000_000)
    assert later.state.entry_time_ms == NOW_MS + 51


async def test_an_entry_holds_at_most_its_number_of_batches(store: MetadataStore, opened: Opener) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    await ask(shard, create(0))
    held.hold()
    first = shard.submit(create(1))
    await turns()
    files = [
        CommitFile(locator(n, NOW_MS), 70_000, batches_in_order(topic_id(0), 0, [1] * 300)) for n in range(9)
    ]
    futures = [shard.submit(file) for file in files]
    held.release()
    results = await results_of([first, *futures])
    bases = [result.results[0] for result in results if isinstance(result, FileCommit)]
    assert bases == [Committed(300 * number, 0) for number in range(9)]
    counts = [
        sum(len(record.batches) for record in entry.records if isinstance(record, FileCommitted))
        for entry in await entries_in(store)
    ]
    assert [count for count in counts if count] == [900, 900, 900]
    assert max(counts) <= GROUP_COMMIT_BATCHES


async def test_an_entry_holds_no_more_offsets_than_batches(store: MetadataStore, opened: Opener) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    await ask(shard, CreateTopic("t", topic_id(1), 300, {}))
    held.hold()
    first = shard.submit(create(99))
    await turns()
    rows = [OffsetRow(topic_id(1), partition, 1) for partition in range(300)]
    futures = [shard.submit(CommitOffsets(f"g{number}", rows)) for number in range(9)]
    held.release()
    assert (await results_of([first, *futures]))[1:] == [OffsetsStored([None] * 300)] * 9
    counts = [
        sum(len(record.rows) for record in entry.records if isinstance(record, OffsetsCommitted))
        for entry in await entries_in(store)
    ]
    assert [count for count in counts if count] == [900, 900, 900]


async def test_an_entry_holds_at_most_its_number_of_bytes(store: MetadataStore, opened: Opener) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    held.hold()
    first = shard.submit(create(99))
    await turns()
    futures = [
        shard.submit(CreateTopic(f"t{number}", topic_id(number), 1, {"k": "v" * 30_000}))
        for number in range(30)
    ]
    held.release()
    assert all(isinstance(result, Created) for result in await results_of([first, *futures]))
    sizes = [len(versioned.value) for _, versioned in await store.scan(entry_prefix(0))]
    assert max(sizes) <= MAX_ENTRY_BYTES
    assert len(sizes) > 3


async def test_a_request_larger_than_an_entry_gets_one_of_its_own(
    store: MetadataStore, opened: Opener
) -> None:
    shard = await opened(store).shard()
    small, large = create(0), CreateTopic("t1", topic_id(1), 1, {"k": "v" * (MAX_ENTRY_BYTES // 4)})
    assert large.weight > MAX_ENTRY_BYTES
    futures = [shard.submit(request) for request in (small, large, create(2))]
    assert all(isinstance(result, Created) for result in await results_of(futures))
    assert [len(entry.records) for entry in await entries_in(store)] == [3, 1, 2]


async def test_requests_beyond_the_bound_of_waiting_ones_are_refused_at_once(
    store: MetadataStore, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert owner_module.MAX_WAITING == 20_000
    monkeypatch.setattr(owner_module, "MAX_WAITING", 5)
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    held.hold()
    first = shard.submit(create(0))
    await turns()
    waiting = [shard.submit(create(number)) for number in range(1, 6)]
    refused = shard.submit(create(6))
    assert refused.done() and isinstance(refused.exception(), StoreUnavailable)
    held.release()
    assert all(isinstance(result, Created) for result in await results_of([first, *waiting]))
    assert "t6" not in shard.state.topics.by_name


# The end


async def test_closing_leaves_unknown_what_is_being_written_and_fails_what_waits(
    store: MetadataStore, opened: Opener
) -> None:
    held = HeldMetadata(store)
    shard = await opened(held).shard()
    held.hold()
    writing = shard.submit(create(0))
    await turns()
    waiting = shard.submit(create(1))
    await shard.close()
    results = await results_of([writing, waiting])
    assert [type(result) for result in results] == [OutcomeUnknown, StoreUnavailable]


async def test_a_closed_shard_refuses_at_once(store: MetadataStore, opened: Opener) -> None:
    shard = await opened(store).shard()
    await shard.close()
    with pytest.raises(StoreUnavailable, match="shutting down"):
        await shard.ask(create(0), asyncio.get_running_loop().time() + 5)


class NotARequest(ReserveProducerIds):
    """Something that no machine knows."""


async def test_a_request_that_cannot_be_decided_ends_the_shard_and_fails_all_that_wait(
    store: MetadataStore, opened: Opener
) -> None:
    shard = await opened(store).shard()
    futures = [shard.submit(request) for request in (create(0), NotARequest(1), create(1))]
    results = await results_of(futures)
    assert all(isinstance(result, (StoreUnavailable, OutcomeUnknown)) for result in results)
    assert shard.lost.is_set()
    assert len(await entries_in(store)) == 1


async def test_other_tasks_run_between_entries_over_a_store_that_never_waits(opened: Opener) -> None:
    shard = await opened(MemoryMetadata()).shard()
    events, all_done = list[str](), asyncio.Event()

    class Again:
        """A client that has its next request ready when it is answered."""

        left = 20

        def done(self) -> bool:
            return False

        def set_result(self, result: LedgerResult, /) -> None:
            events.append("entry")
            self.left -= 1
            if self.left:
                shard.submit_for(self, ReserveProducerIds(1))
            else:
                all_done.set()

        def set_exception(self, error: Exception, /) -> None:
            events.append(str(error))

    async def tick() -> None:
        while True:
            events.append("other")
            await asyncio.sleep(0)

    shard.submit_for(Again(), ReserveProducerIds(1))
    ticking = asyncio.ensure_future(tick())
    async with asyncio.timeout(WAIT_S):
        await all_done.wait()
    ticking.cancel()
    entries = [place for place, event in enumerate(events) if event == "entry"]
    assert all(after - before > 1 for before, after in itertools.pairwise(entries)), events
