"""The promises of Journal, kept over every metadata store: with outcomes that are lost, errors before and
after the effect, puts that arrive late, and other gateways that append and prune in between.

No test needs more than S3 gives.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.guarded import GuardedJournal, is_guarding
from adapters.journals.metadata import MetadataJournal, entry_key, start_key
from adapters.local_log.opening import open_local_log
from adapters.segments.memory import MemorySegments
from gateway.coordination.blob_keys import new_snapshot_key
from gateway.housekeeping.pruning import Pruner
from ledger.batch.records import Record, build_batch
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ledger.formats.snapshot import Snapshot, encode_snapshot
from ledger.journal import HEAD_BYTES, MAX_ENTRY_BYTES, NONCE_BYTES, encode_entry, nonce_of
from ledger.ports import (
    SCAN_BYTES,
    Appended,
    AppendOutcome,
    EntryPage,
    Journal,
    Lost,
    MetadataStore,
    PutOutcome,
    SegmentStore,
    Unknown,
    Versioned,
    Won,
)
from ledger.types import Buffer, DraftBatch, Placement, Position, TopicId
from tests.contract.backends import ETCD, FILER, METADATA, metadata_url, opened_metadata
from tests.support.faulty import EVERY_FAULT, Fault, Faults, FaultyGuarding, FaultyMetadata
from tests.support.held_stores import HeldMetadata
from tests.support.interleaved import InterleavedMetadata, Interleaving

INTERLEAVINGS = 1_000
FEWER = {ETCD: 60, FILER: 30}
"""Over a server each call takes a millisecond, where it takes microseconds in memory."""
GROWTH = 3
SEED = 20_261_122
NOW_MS = 1_000_000
UNCLEAR = [fault for fault in EVERY_FAULT if fault is not Fault.ERROR_BEFORE]


@pytest.fixture(params=METADATA)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    store = opened_metadata(metadata_url(request, tmp_path))
    yield store
    await store.close()


LOCAL_LOG: Final = "local log"


@pytest.fixture(params=[*METADATA, LOCAL_LOG])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    if request.param == LOCAL_LOG:
        local_log = open_local_log(tmp_path)
        yield local_log.journal
        await local_log.close()
        return
    store = opened_metadata(metadata_url(request, tmp_path))
    yield journal_over(store)
    await store.close()


def journal_over(store: MetadataStore) -> MetadataJournal:
    """That of the store's own, if it can do more than a MetadataStore."""
    return GuardedJournal(store, 0) if is_guarding(store) else MetadataJournal(store, 0)


def faulty_journal(store: MetadataStore, faults: Faults) -> MetadataJournal:
    return journal_over(
        FaultyGuarding(store, faults) if is_guarding(store) else FaultyMetadata(store, faults)
    )


class Shared(HeldMetadata):
    """The store, as a process sees it that is not alone."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store, exclusive=False)


def entry(nonce: int, size: int = 0) -> bytes:
    return encode_entry(1, 0, nonce.to_bytes(NONCE_BYTES, "big"), []) + bytes(size)


async def fill(journal: Journal, numbers: Sequence[int], size: int = 0) -> None:
    for number in numbers:
        assert isinstance(await journal.append(number, entry(number, size)), Appended)


async def counts(journal: Journal, number: int, outcome: AppendOutcome) -> bool:
    return isinstance(outcome, Appended) and (outcome.counts or await journal.start() <= number)


def numbers_of(page: EntryPage) -> list[int]:
    return [stored.number for stored in page.entries]


# Appending


async def test_an_appended_entry_is_read_back_byte_for_byte(journal: Journal) -> None:
    assert await journal.get(0) is None
    outcome = await journal.append(0, entry(7, 100))
    assert isinstance(outcome, Appended) and (outcome.counts or not journal.exclusive)
    assert await counts(journal, 0, outcome)
    assert await journal.get(0) == entry(7, 100)
    (stored,) = (await journal.read(0, SCAN_BYTES)).entries
    assert (stored.number, stored.data) == (0, entry(7, 100))
    assert not journal.unknown_entry


async def test_exactly_one_of_many_gateways_appends_an_entry(store: MetadataStore) -> None:
    gateways = [journal_over(store) for _ in range(20)]
    outcomes = await asyncio.gather(*(gateway.append(0, entry(n)) for n, gateway in enumerate(gateways)))
    winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Appended)]
    assert len(winners) == 1
    assert outcomes.count(Lost()) == 19
    assert await gateways[0].get(0) == entry(winners[0])


async def test_shards_have_journals_of_their_own(store: MetadataStore) -> None:
    for shard in (0, 1, 11):
        journal = MetadataJournal(store, shard)
        assert journal.shard == shard
        await fill(journal, range(shard + 1))
        await journal.raise_start(shard)
    for shard in (0, 1, 11):
        journal = MetadataJournal(store, shard)
        assert numbers_of(await journal.read(0, SCAN_BYTES)) == list(range(shard + 1))
        assert await journal.start() == shard


async def test_an_append_that_certainly_failed_leaves_its_number_for_other_bytes(
    store: MetadataStore,
) -> None:
    journal = faulty_journal(store, Faults(1, only=["put"]))
    with pytest.raises(StoreUnavailable):
        await journal.append(0, entry(1))
    assert await journal.get(0) is None and not journal.unknown_entry
    assert isinstance(await journal.append(0, entry(2)), Appended)
    assert await journal.get(0) == entry(2)


@pytest.mark.parametrize("fault", UNCLEAR)
@pytest.mark.parametrize("times", [1, 3])
async def test_an_append_resolves_unknown_outcomes_and_is_there_once(
    store: MetadataStore, fault: Fault, times: int
) -> None:
    faults = Faults(1, fault, times=times, late_by=2, only=["put"])
    journal = faulty_journal(store, faults)
    assert isinstance(await journal.append(0, entry(1)), Appended)
    assert not journal.unknown_entry
    await fill(journal, [1])
    # What is still under way loses to itself.
    await faults.arrive()
    page = await MetadataJournal(store, 0).read(0, SCAN_BYTES)
    assert [stored.data for stored in page.entries] == [entry(1), entry(1)]


async def test_an_append_goes_on_while_it_cannot_be_read_back(store: MetadataStore) -> None:
    class Failing(HeldMetadata):
        left = 2
        seen: tuple[str, ...] = ()

        async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
            await super().put(key, value, expect)
            return Unknown("on purpose")

        async def get(self, key: str) -> Versioned | None:
            self.seen += (appending.unknown_entry,)
            self.left -= 1
            if self.left >= 0:
                raise StoreUnavailable("on purpose")
            return await super().get(key)

    failing = Failing(store)
    appending = MetadataJournal(failing, 0)
    assert isinstance(await appending.append(0, entry(1)), Appended)
    where = (await appending.read(0, SCAN_BYTES)).entries[0].where
    assert failing.seen[:3] == ("", where, where) and not appending.unknown_entry


@pytest.mark.parametrize("fault", [Fault.NEVER_SENT, Fault.LATE])
async def test_an_append_of_unknown_outcome_is_lost_to_the_entry_of_another_gateway(
    store: MetadataStore, fault: Fault
) -> None:
    faults = Faults(1, fault, late_by=100, only=["put"])
    await fill(MetadataJournal(store, 0), [0])
    journal = faulty_journal(store, faults)
    assert await journal.append(0, entry(9)) == Lost()
    await faults.arrive()
    assert await journal.get(0) == entry(0)


class PrunedAfter(Shared):
    """After the first put, whose outcome is unknown, another gateway goes on and prunes past the entry, and a
    third one that slept puts its own under the number, which is free again."""

    is_first = True
    start_fails = False

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        outcome = await super().put(key, value, expect)
        if not self.is_first:
            return outcome
        self.is_first = False
        other = MetadataJournal(self._store, 0)
        await fill(other, [1, 2])
        await other.raise_start(2)
        await other.delete([0, 1])
        await fill(other, [0])
        return Unknown("on purpose")

    async def get(self, key: str) -> Versioned | None:
        if self.start_fails and key == start_key(0):
            raise StoreUnavailable("on purpose")
        return await super().get(key)


@pytest.mark.parametrize("start_fails", [False, True])
async def test_an_append_that_may_have_been_pruned_is_not_called_lost(
    store: MetadataStore, start_fails: bool
) -> None:
    """It was in the journal, and others have seen it: what waited for it has not failed for certain."""
    stale = PrunedAfter(store)
    stale.start_fails = start_fails
    outcome = await MetadataJournal(stale, 0).append(0, entry(9))
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "on purpose" if start_fails else "pruned past entry 0" in outcome.reason


async def test_an_append_under_a_pruned_number_does_not_say_that_it_counts(store: MetadataStore) -> None:
    owner, stale = MetadataJournal(store, 0), MetadataJournal(Shared(store), 0)
    await fill(owner, range(4))
    await owner.raise_start(3)
    await owner.delete([1, 2])
    assert not await counts(stale, 2, await stale.append(2, entry(9)))
    assert await counts(stale, 4, await stale.append(4, entry(4)))


# Reading


async def test_a_page_has_the_entries_in_order_from_the_first_one_on(journal: Journal) -> None:
    await fill(journal, range(4))
    page = await journal.read(1, SCAN_BYTES)
    assert (page.first, numbers_of(page), page.next) == (1, [1, 2, 3], 4)
    assert (page.gap, page.more, page.pruned) == (None, False, False)
    end = await journal.read(4, SCAN_BYTES)
    assert (end.first, numbers_of(end), end.next) == (4, [], 4)
    assert (end.gap, end.more, end.pruned) == (None, False, False)


@pytest.mark.parametrize(("size", "count"), [(0, 200), (1_000, 200), (MAX_ENTRY_BYTES - HEAD_BYTES, 20)])
async def test_a_journal_is_read_whole_in_pages_bounded_by_bytes(
    journal: Journal, size: int, count: int
) -> None:
    await fill(journal, range(count), size)
    for max_bytes in (1, 5_000, SCAN_BYTES):
        found: list[int] = []
        more = True
        while more:
            page = await journal.read(len(found), max_bytes)
            more = page.more
            assert page.entries or not more
            assert sum(len(stored.data) for stored in page.entries[:-1]) < max_bytes
            found += numbers_of(page)
            assert page.next == len(found) and page.gap is None
        assert found == list(range(count))


async def test_pages_are_not_much_smaller_than_they_may_be(journal: Journal) -> None:
    await fill(journal, range(50), 1_000)
    assert len((await journal.read(0, SCAN_BYTES)).entries) == 50
    assert len((await journal.read(0, 10_000)).entries) == 10


async def test_a_page_says_where_the_first_entry_is_missing(journal: Journal) -> None:
    await fill(journal, range(10))
    await journal.raise_start(9)
    await journal.delete([1, 2, 3, 6, 7, 8])

    async def gap_from(first: int, max_bytes: int = SCAN_BYTES) -> tuple[list[int], int | None]:
        page = await journal.read(first, max_bytes)
        return numbers_of(page), page.gap

    assert await gap_from(0) == ([0, 4, 5, 9], 1)
    assert await gap_from(0, 1) == ([0], None)
    assert await gap_from(1, 1) == ([4], 1)
    assert await gap_from(4) == ([4, 5, 9], 6)
    assert await gap_from(4, 2 * len(entry(4))) == ([4, 5], None)
    assert await gap_from(9) == ([9], None)


async def test_a_page_that_was_pruned_before_or_while_it_was_read_says_so(store: MetadataStore) -> None:
    journal = MetadataJournal(store, 0)
    await fill(journal, range(10))

    class Overtaken(Shared):
        """Another gateway prunes right after the entries were read."""

        async def scan(
            self, prefix: str, start: str = "", limit: int = 1000
        ) -> Sequence[tuple[str, Versioned]]:
            found = await super().scan(prefix, start, limit)
            await journal.raise_start(6)
            return found

    stale = MetadataJournal(Overtaken(store), 0)
    assert (await stale.read(5, SCAN_BYTES)).pruned
    assert not (await stale.read(6, SCAN_BYTES)).pruned
    # Also where nothing is left to be read.
    await journal.raise_start(20)
    assert (await stale.read(15, SCAN_BYTES)).pruned


async def test_a_journal_of_one_process_is_read_without_looking_for_prunes_of_others(
    store: MetadataStore,
) -> None:
    held = HeldMetadata(store)
    journal = MetadataJournal(held, 0)
    await fill(journal, range(3))
    await journal.read(0, SCAN_BYTES)
    assert not held.read_keys or not journal.exclusive


# Pruning


async def test_the_start_is_durable_and_never_lowered(journal: Journal) -> None:
    assert await journal.start() == 0
    for number, start in ((5, 5), (5, 5), (3, 5), (0, 5), (6, 6)):
        await journal.raise_start(number)
        assert await journal.start() == start


@pytest.mark.parametrize("fault", EVERY_FAULT)
async def test_a_start_that_was_raised_with_an_error_is_raised_or_not_and_never_goes_back(
    store: MetadataStore, fault: Fault
) -> None:
    await MetadataJournal(store, 0).raise_start(2)
    faults = Faults(1, fault, late_by=100, only=["put"])
    journal = faulty_journal(store, faults)
    try:
        await journal.raise_start(5)
        assert await journal.start() == 5 and fault is not Fault.ERROR_BEFORE
    except StoreUnavailable:
        assert await journal.start() == 2 and fault is Fault.ERROR_BEFORE
    await journal.raise_start(9)
    await faults.arrive()
    assert await journal.start() == 9


async def test_a_start_that_cannot_be_raised_ends_with_an_unknown_outcome(store: MetadataStore) -> None:
    faults = Faults(1, Fault.NEVER_SENT, times=1_000, only=["put"])
    with pytest.raises(OutcomeUnknown):
        await faulty_journal(store, faults).raise_start(5)
    assert await MetadataJournal(store, 0).start() == 0


async def test_deleted_entries_are_gone_and_deleting_twice_is_no_error(journal: Journal) -> None:
    await fill(journal, range(6))
    await journal.raise_start(5)
    await journal.delete([0, 2, 3])
    await journal.delete([3, 77])
    await journal.delete([])
    assert numbers_of(await journal.read(0, SCAN_BYTES)) == [1, 4, 5]
    assert await journal.get(3) is None


@pytest.fixture
def interleavings(request: pytest.FixtureRequest) -> int:
    return FEWER.get(request.node.callspec.params["store"], INTERLEAVINGS)


async def test_the_start_never_goes_back_while_an_owner_and_a_deposed_one_prune(
    store: MetadataStore, interleavings: int
) -> None:
    journal, blobs, dice = MetadataJournal(store, 0), MemoryBlobs(), random.Random(SEED)
    starts = [0]

    async def note_start() -> None:
        starts.append(await journal.start())

    interleaving = Interleaving(dice, note_start)
    gateways = [InterleavedMetadata(store, interleaving, unknown_prefix=start_key(0)) for _ in range(2)]
    pruners = [Pruner(MetadataJournal(gateway, 0), blobs, lambda: NOW_MS) for gateway in gateways]
    raised_by_both = 0
    for end in range(GROWTH, interleavings * GROWTH + 1, GROWTH):
        for number in range(end - GROWTH, end):
            data = encode_entry(1, 0, dice.randbytes(NONCE_BYTES), [])
            assert isinstance(await store.put(entry_key(0, number), data, None), Won)
            snapshot = Snapshot(number + 1, nonce_of(data), [])
            await blobs.put(new_snapshot_key(0, number + 1, NOW_MS), [encode_snapshot(snapshot)])
        before = len(starts)
        # The deposed one knows nothing of the last entry.
        await interleaving.run(pruners[0].prune(end - 1), pruners[1].prune(end))
        raised_by_both += len(set(starts[before:])) > 2
    assert starts == sorted(starts)
    assert starts[-1] > (interleavings - 1) * GROWTH
    # They did get in each other's way.
    assert raised_by_both > interleavings / 20
    assert all(gateway.unknown > interleavings / 20 for gateway in gateways)


# Beginning where a snapshot ends


@pytest.mark.parametrize("before", [None, entry(6)])
async def test_a_journal_can_begin_at_any_entry(journal: Journal, before: bytes | None) -> None:
    await journal.begin(7, entry(7), before)
    first = 7 if before is None else 6
    assert await journal.start() == first
    page = await journal.read(first, SCAN_BYTES)
    assert [stored.data for stored in page.entries] == [data for data in (before, entry(7)) if data]
    assert page.gap is None and page.first == page.entries[0].number
    await fill(journal, [8])


async def test_a_journal_begins_in_the_place_of_no_other(journal: Journal) -> None:
    await fill(journal, range(8))
    with pytest.raises(StoreError):
        await journal.begin(7, entry(9), None)
    assert await journal.get(7) == entry(7)


@pytest.mark.parametrize("fault", EVERY_FAULT)
@pytest.mark.parametrize("call", [1, 2, 3])
async def test_a_beginning_that_failed_can_be_discarded_whole(
    store: MetadataStore, fault: Fault, call: int
) -> None:
    faults = Faults(call, fault, only=["put"])
    journal = faulty_journal(store, faults)
    # What is there after a conflict is what was to be put.
    failing = nullcontext() if fault is Fault.CONFLICT_AFTER_RETRY else pytest.raises(StoreError)
    with failing:
        await journal.begin(7, entry(7), entry(6))
    await faults.arrive()
    await journal.discard(7)
    assert not await store.scan("")


@pytest.mark.parametrize("fault", EVERY_FAULT)
@pytest.mark.parametrize("call", [1, 2, 3])
async def test_the_same_beginning_again_puts_what_is_missing(
    store: MetadataStore, fault: Fault, call: int
) -> None:
    faults = Faults(call, fault, only=["put"])
    with suppress(StoreError):
        await faulty_journal(store, faults).begin(7, entry(7), entry(6))
    await faults.arrive()
    journal = faulty_journal(store, Faults())
    for _ in range(2):
        await journal.begin(7, entry(7), entry(6))
    assert await journal.start() == 6
    assert [await journal.get(number) for number in (6, 7)] == [entry(6), entry(7)]
    with pytest.raises(StoreError):
        await journal.begin(7, entry(9), entry(6))
    with pytest.raises(StoreError):
        await journal.begin(7, entry(7), None)


# Batches within an entry


BATCHES = [
    DraftBatch(TopicId(bytes(16)), partition, build_batch([Record(value=bytes(100 * partition))]), 1)
    for partition in range(3)
]


class WithBatches(MetadataJournal):
    """A journal that takes batches into its entries: those of an entry are an object."""

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        starts = [sum(len(batch.data) for batch in batches[:n]) for n in range(len(batches) + 1)]
        return Placement(f"inline/{number}", starts[:-1], starts[-1])

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        data = b"".join([entry, *(batch.data for batch in batches), len(entry).to_bytes(4, "big")])
        return await super().append(number, data)

    async def read_inline(self, position: Position) -> Buffer:
        data = await self.get(int(position.locator.removeprefix("inline/")))
        assert data is not None
        at = int.from_bytes(data[-4:], "big") + position.start
        return data[at : at + position.size]


async def placed(
    journal: Journal, segments: SegmentStore, number: int, batches: Sequence[DraftBatch]
) -> tuple[Placement, Sequence[DraftBatch]]:
    """All that differs between the two ways of a draft: where its batches are, and which go with the
    entry."""
    inline = journal.place(number, batches)
    return (await segments.write(batches, NOW_MS), ()) if inline is None else (inline, batches)


@pytest.mark.parametrize("kind", [MetadataJournal, WithBatches])
async def test_batches_are_where_the_entry_says_whether_the_journal_takes_them_or_not(
    store: MetadataStore, kind: type[MetadataJournal]
) -> None:
    journal, segments = kind(store, 0), MemorySegments()
    placement, inline = await placed(journal, segments, 5, BATCHES)
    # An entry that names the placement is known before the batches are written with it.
    assert isinstance(await journal.append(5, entry(5) + repr(placement).encode(), inline), Appended)
    for batch, start in zip(BATCHES, placement.starts, strict=True):
        position = Position(placement.locator, start, len(batch.data))
        if isinstance(journal, WithBatches):
            assert await journal.read_inline(position) == batch.data
        else:
            assert await segments.read([position]) == [batch.data]


async def test_a_journal_that_takes_no_batches_writes_none(store: MetadataStore) -> None:
    journal = MetadataJournal(store, 0)
    assert journal.place(0, BATCHES) is None
    assert not journal.takes(0, 0) and not journal.holds(entry_key(0, 0))
    with pytest.raises(ValueError):
        await journal.append(0, entry(0), BATCHES)
    assert await journal.get(0) is None
