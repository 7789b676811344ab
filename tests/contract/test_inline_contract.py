"""What a journal over a metadata store promises of record batches inside of its entries, over every store:
the entry and its batches are there together or not at all, and a reader never gets those of another entry.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.journals.guarded import GuardedJournal, is_guarding
from adapters.journals.inline import InlineFrames
from adapters.journals.metadata import MetadataJournal, entry_key
from adapters.segments.inline_and_objects import InlineAndObjects
from adapters.segments.memory import MemorySegments
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreDamaged, StoreTooNew, StoreUnavailable
from ledger.formats.inline import INLINE_HEAD_BYTES, decode_value
from ledger.journal import NONCE_BYTES, decode_entry, encode_entry, nonce_of
from ledger.ports import SCAN_BYTES, Appended, Lost, MetadataStore, Versioned
from ledger.types import Buffer, DraftBatch, Placement, Position, TopicId
from tests.contract.backends import METADATA, metadata_url, opened_metadata
from tests.support.faulty import EVERY_FAULT, Fault, Faults, FaultyGuarding, FaultyMetadata
from tests.support.held_stores import HeldMetadata

MAX_DRAFT_BYTES = 64 * 1024


class TakesSmall:
    """Takes drafts of up to MAX_DRAFT_BYTES."""

    def __init__(self) -> None:
        self.appended_bytes = 0

    def takes(self, batches: int, size: int) -> bool:
        return size <= MAX_DRAFT_BYTES

    def appended(self, size: int) -> None:
        self.appended_bytes += size


@pytest.fixture(params=METADATA)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    store = opened_metadata(metadata_url(request, tmp_path))
    yield store
    await store.close()


def journal_over(store: MetadataStore) -> MetadataJournal:
    journal = GuardedJournal(store, 0) if is_guarding(store) else MetadataJournal(store, 0)
    journal.rule = TakesSmall()
    return journal


def faulty_journal(store: MetadataStore, faults: Faults) -> MetadataJournal:
    return journal_over(
        FaultyGuarding(store, faults) if is_guarding(store) else FaultyMetadata(store, faults)
    )


def entry(nonce: int, size: int = 0) -> bytes:
    return encode_entry(1, 0, nonce.to_bytes(NONCE_BYTES, "big"), []) + bytes(size)


def draft(fill: int, sizes: tuple[int, ...] = (10, 200, 3_000)) -> list[DraftBatch]:
    return [
        DraftBatch(TopicId(bytes(16)), n % 2, build_batch([Record(value=bytes([fill]) * size)]), 1)
        for n, size in enumerate(sizes)
    ]


async def append(journal: MetadataJournal, number: int, batches: list[DraftBatch]) -> Placement:
    placement = journal.place(number, batches)
    assert placement is not None
    assert isinstance(await journal.append(number, entry(number), batches), Appended)
    return placement


def positions(placement: Placement, batches: list[DraftBatch]) -> list[Position]:
    return [
        Position(placement.locator, start, len(batch.data))
        for start, batch in zip(placement.starts, batches, strict=True)
    ]


async def stored(store: MetadataStore, wanted: list[Position]) -> list[Buffer | None]:
    """As a process reads them that has appended nothing."""
    frames = InlineFrames(store, 0)
    try:
        return await frames.read(wanted)
    finally:
        await frames.close()


async def test_batches_inside_an_entry_are_read_back_where_it_says(store: MetadataStore) -> None:
    journal, batches = journal_over(store), draft(1)
    placement = await append(journal, 0, batches)
    data = [batch.data for batch in batches]
    wanted = positions(placement, batches)
    assert await journal.frames.read(wanted) == await stored(store, wanted) == data
    assert journal.holds(placement.locator)


async def test_the_entry_is_read_as_one_without_batches(store: MetadataStore) -> None:
    journal, batches = journal_over(store), draft(1)
    await append(journal, 0, batches)
    assert isinstance(await journal.append(1, entry(1)), Appended)
    assert [await journal.get(number) for number in (0, 1)] == [entry(0), entry(1)]
    first, second = (await journal.read(0, SCAN_BYTES)).entries
    assert (first.data, second.data, second.batches) == (entry(0), entry(1), b"")
    assert batches[2].data in first.batches


async def test_a_build_without_such_entries_refuses_one_as_newer(store: MetadataStore) -> None:
    journal = journal_over(store)
    await append(journal, 0, draft(1))
    found = await store.get(entry_key(0, 0))
    assert found is not None
    with pytest.raises(StoreTooNew, match="format version 2"):
        decode_entry(found.value, "0")
    assert nonce_of(found.value) == nonce_of(entry(0))


async def test_a_draft_that_the_rule_does_not_take_has_no_place(store: MetadataStore) -> None:
    journal, large = journal_over(store), draft(1, (MAX_DRAFT_BYTES,))
    assert journal.place(0, large) is None and not journal.takes(1, MAX_DRAFT_BYTES + 1)
    with pytest.raises(ValueError):
        await journal.append(0, entry(0), large)
    assert await journal.get(0) is None


@pytest.mark.parametrize("fault", [fault for fault in EVERY_FAULT if fault is not Fault.ERROR_BEFORE])
async def test_an_unknown_outcome_leaves_entry_and_batches_once(store: MetadataStore, fault: Fault) -> None:
    faults = Faults(1, fault, times=2, late_by=2, only=["put"])
    journal, batches = faulty_journal(store, faults), draft(1)
    placement = await append(journal, 0, batches)
    await faults.arrive()
    assert await stored(store, positions(placement, batches)) == [batch.data for batch in batches]
    assert await journal.get(0) == entry(0)


async def test_of_an_append_that_failed_for_certain_no_batch_is_there(store: MetadataStore) -> None:
    journal, batches = faulty_journal(store, Faults(1, only=["put"])), draft(1)
    placement = journal.place(0, batches)
    assert placement is not None
    with pytest.raises(StoreUnavailable):
        await journal.append(0, entry(0), batches)
    wanted = positions(placement, batches)
    assert await journal.frames.read(wanted) == await stored(store, wanted) == [None] * 3
    # Its number is free for another draft.
    again = await append(journal, 0, others := draft(2))
    assert await stored(store, positions(again, others)) == [batch.data for batch in others]
    assert await stored(store, wanted) == [None] * 3


async def test_of_two_gateways_one_has_its_entry_and_its_batches(store: MetadataStore) -> None:
    first, second = journal_over(store), journal_over(store)
    ours, theirs = draft(1), draft(2)
    lost = second.place(0, theirs)
    placement = await append(first, 0, ours)
    assert lost is not None
    assert await second.append(0, entry(9), theirs) == Lost()
    assert await stored(store, positions(placement, ours)) == [batch.data for batch in ours]
    assert await second.frames.read(positions(lost, theirs)) == [None] * 3


async def test_what_took_the_number_of_a_pruned_entry_is_not_read_for_it(store: MetadataStore) -> None:
    journal = journal_over(store)
    batches, others = draft(1), draft(2)
    wanted = positions(await append(journal, 0, batches), batches)
    await journal.delete([0])
    assert await stored(store, wanted) == [None] * 3
    # A gateway that slept puts another draft of the same sizes under the number.
    sleeper = journal_over(store)
    await append(sleeper, 0, others)
    assert await stored(store, wanted) == [None] * 3
    await sleeper.delete([0])
    assert isinstance(await sleeper.append(0, entry(0)), Appended)
    assert await stored(store, wanted) == [None] * 3


async def test_ranges_outside_of_the_batches_are_not_there(store: MetadataStore) -> None:
    placement = await append(journal_over(store), 0, draft(1))
    locator, size = placement.locator, placement.object_bytes
    wanted = [(0, size), (size, 1), (-1, 2), (0, size + 1), (1, -1)]
    found = await stored(store, [Position(locator, *each) for each in wanted])
    assert [each is not None for each in found] == [True, False, False, False, False]
    unknown = [locator.replace("journal/0/", "journal/1/"), "journal/0/1", "journal/0/" + "9" * 20 + "-0" * 8]
    assert await stored(store, [Position(each, 0, 1) for each in unknown]) == [None] * 3


async def test_readers_of_an_entry_share_one_read_that_none_of_them_ends(store: MetadataStore) -> None:
    class Counting(HeldMetadata):
        reads = 0
        began = asyncio.Event()

        async def get(self, key: str) -> Versioned | None:
            self.reads += 1
            self.began.set()
            await asyncio.sleep(0.01)
            return await super().get(key)

    batches = draft(1)
    wanted = positions(await append(journal_over(store), 0, batches), batches)
    counting = Counting(store)
    frames = InlineFrames(counting, 0)
    cancelled, *others = [asyncio.create_task(frames.read([each])) for each in wanted]
    await counting.began.wait()
    cancelled.cancel()
    assert [(await reader)[0] for reader in others] == [batch.data for batch in batches[1:]]
    assert counting.reads == 1


async def test_a_read_that_fails_after_its_reader_has_left_is_no_news(store: MetadataStore) -> None:
    """An owner that has lost its store leaves such reads behind: a stack of each would fill the log."""

    class Failing(HeldMetadata):
        began = asyncio.Event()
        ended = asyncio.Event()

        async def get(self, key: str) -> Versioned | None:
            self.began.set()
            await self.ended.wait()
            raise StoreUnavailable("gone")

    batches = draft(1)
    wanted = positions(await append(journal_over(store), 0, batches), batches)
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    failing = Failing(store)
    frames = InlineFrames(failing, 0)
    reader = asyncio.create_task(frames.read(wanted))
    await failing.began.wait()
    reader.cancel()
    await asyncio.wait([reader])
    failing.ended.set()
    for _ in range(10):
        await asyncio.sleep(0)
    # Its stack holds the read.
    del reader
    gc.collect()
    assert unheard == []


async def test_entries_kept_in_memory_are_bounded(store: MetadataStore) -> None:
    journal = journal_over(store)
    frames = InlineFrames(store, 0, kept_bytes=10_000)
    drafts = {number: draft(number) for number in range(5)}
    places = {number: await append(journal, number, batches) for number, batches in drafts.items()}
    for number, batches in drafts.items():
        assert await frames.read(positions(places[number], batches)) == [each.data for each in batches]
    for number in drafts:
        await journal.delete([number])
    kept = [
        number
        for number, batches in drafts.items()
        if (await frames.read(positions(places[number], batches)))[0]
    ]
    assert kept == [3, 4]


@pytest.mark.parametrize("at", [7, 8, 13, 21, 37])
async def test_a_damaged_head_is_damage_of_the_entry(store: MetadataStore, at: int) -> None:
    journal = journal_over(store)
    placement = await append(journal, 0, draft(1))
    found = await store.get(entry_key(0, 0))
    assert found is not None
    damaged = bytearray(found.value)
    damaged[at] ^= 1
    with pytest.raises(StoreDamaged):
        decode_value(bytes(damaged), "0")
    await store.put(entry_key(0, 0), bytes(damaged), found.version)
    with pytest.raises(StoreDamaged):
        await journal.get(0)
    with pytest.raises(StoreDamaged):
        await journal.read(0, SCAN_BYTES)
    assert await stored(store, [Position(placement.locator, 0, 1)]) == [None]
    with pytest.raises(StoreDamaged):
        decode_value(found.value[:-1], "0")
    with pytest.raises(StoreDamaged):
        decode_value(found.value[: INLINE_HEAD_BYTES - 1], "0")


async def test_both_kinds_of_batches_are_read_through_one_store(store: MetadataStore) -> None:
    journal, objects = journal_over(store), MemorySegments()
    both = InlineAndObjects(objects, journal.frames)
    batches, others = draft(1), draft(2)
    inline = positions(await append(journal, 0, batches), batches)
    stored_apart = positions(await both.write(others, 1_000), others)
    mixed = [place for pair in zip(inline, stored_apart, strict=True) for place in pair]
    expected = [each.data for pair in zip(batches, others, strict=True) for each in pair]
    assert await both.read(mixed) == expected
    # Deleting leaves what is in entries.
    await both.delete([inline[0].locator, stored_apart[0].locator])
    assert await both.read(mixed) == [data if n % 2 == 0 else None for n, data in enumerate(expected)]
    assert not await both.objects()
    await both.close()
