"""What a journal that takes batches promises of them: they are where `place` said once their entry is there,
and nothing of a draft that was not appended is ever read as one that was."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.memory_log import MemoryLog, MemoryLogFiles
from adapters.local_log.opening import LocalLog, open_local_log
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreUnavailable
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.keys import is_log
from ledger.ports import Appended, Journal, SegmentStore
from ledger.types import DraftBatch, Placement, Position, TopicId
from tests.support.faulty import EVERY_FAULT, Fault, Faults, FaultyMetadata

NOW_MS = 1_700_000_000_000
ROLL_BYTES = 40_000
LOCAL_ROLL_BYTES = 570_000
"""A file has space for an entry of any size behind every frame."""


@dataclass
class Opened:
    """A journal in memory, and the store that reads the batches in it."""

    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self._store = MemoryMetadata()
        self._files = MemoryLogFiles()
        blobs = SegmentBlobs(MemoryBlobs())
        self.segments: SegmentStore = WalAndSegments(MemorySegments(), blobs, logs=self._files)
        self.journal: Journal
        self.open()

    async def begin_again(self) -> None:
        """Another process opens it."""
        await self.close()
        self.open()

    async def close(self) -> None:
        """The process ends."""

    def open(self) -> None:
        store = FaultyMetadata(self._store, self.faults)
        self.journal = MemoryLog(store, 0, self._files, lambda: NOW_MS, roll_bytes=ROLL_BYTES)

    async def append(self, number: int, batches: Sequence[DraftBatch]) -> Placement:
        placement = self.journal.place(number, batches)
        assert placement is not None
        outcome = await self.journal.append(number, entry(number), batches)
        assert outcome == Appended(counts=True)
        return placement

    async def read(self, placement: Placement, batches: Sequence[DraftBatch]) -> list[bytes | None]:
        where = [
            Position(placement.locator, start, len(batch.data))
            for start, batch in zip(placement.starts, batches, strict=True)
        ]
        return [None if data is None else bytes(data) for data in await self.segments.read(where)]


@dataclass
class OpenedLocally(Opened):
    """A local log."""

    directory: Path = field(kw_only=True)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self._log: LocalLog = open_local_log(
            self.directory, roll_bytes=LOCAL_ROLL_BYTES, clock=lambda: NOW_MS
        )
        self.journal = self._log.journal
        blobs = SegmentBlobs(MemoryBlobs())
        self.segments = WalAndSegments(MemorySegments(), blobs, logs=self._log.wal)

    async def close(self) -> None:
        await self._log.close()


@pytest.fixture(params=["memory", "local log"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    opened = Opened() if request.param == "memory" else OpenedLocally(directory=tmp_path)
    yield opened
    await opened.close()


def entry(number: int) -> bytes:
    return encode_entry(0, NOW_MS, number.to_bytes(NONCE_BYTES, "big"), [])


def draft(name: str, sizes: Sequence[int] = (100, 200, 300)) -> list[DraftBatch]:
    return [
        DraftBatch(TopicId(bytes(16)), at, build_batch([Record(value=name.encode() * size)]), 1)
        for at, size in enumerate(sizes)
    ]


def bytes_of(batches: Sequence[DraftBatch]) -> list[bytes]:
    return [bytes(batch.data) for batch in batches]


async def test_batches_are_where_they_were_placed(opened: Opened) -> None:
    drafts = [draft(f"{number}") for number in range(100)]
    placements = [await opened.append(number, batches) for number, batches in enumerate(drafts)]
    assert len({placement.locator for placement in placements}) > 2, "no file was followed by another"
    for placement, batches in zip(placements, drafts, strict=True):
        assert await opened.read(placement, batches) == bytes_of(batches)
        assert max(placement.starts) < placement.object_bytes


async def test_positions_of_a_file_grow_and_never_overlap(opened: Opened) -> None:
    ends: dict[str, int] = {}
    for number in range(60):
        batches = draft(f"{number}")
        placement = await opened.append(number, batches)
        assert list(placement.starts) == sorted(placement.starts)
        assert placement.starts[0] >= ends.get(placement.locator, 0)
        last = placement.starts[-1] + len(batches[-1].data)
        assert last <= placement.object_bytes
        ends[placement.locator] = placement.object_bytes


async def test_to_place_a_draft_has_no_effect(opened: Opened) -> None:
    await opened.append(0, draft("first"))
    before = await opened.segments.objects()
    placed = opened.journal.place(1, draft("dropped", [5000]))
    assert placed is not None and await opened.segments.objects() == before
    assert await opened.journal.append(1, entry(1)) == Appended(counts=True)
    batches = draft("second")
    assert await opened.read(await opened.append(2, batches), batches) == bytes_of(batches)


async def test_batches_without_a_place_are_not_appended(opened: Opened) -> None:
    with pytest.raises(ValueError):
        await opened.journal.append(0, entry(0), draft("a"))
    batches = draft("a")
    opened.journal.place(0, batches)
    with pytest.raises(ValueError):
        await opened.journal.append(1, entry(1), batches)
    assert await opened.journal.get(0) is None and await opened.journal.get(1) is None


async def test_after_a_certain_failure_the_next_draft_is_read_and_not_that_one() -> None:
    opened = Opened(Faults(2, Fault.ERROR_BEFORE, only=["put"]))
    kept = draft("kept")
    first = await opened.append(0, kept)
    lost, batches = draft("lost", [700, 10]), draft("next")
    assert opened.journal.place(1, lost) is not None
    with pytest.raises(StoreUnavailable):
        await opened.journal.append(1, entry(1), lost)
    placement = await opened.append(1, batches)
    assert await opened.read(placement, batches) == bytes_of(batches)
    assert await opened.read(first, kept) == bytes_of(kept)


@pytest.mark.parametrize("fault", [fault for fault in EVERY_FAULT if fault is not Fault.ERROR_BEFORE])
async def test_batches_are_there_once_an_unknown_outcome_is_known(fault: Fault) -> None:
    opened = Opened(Faults(1, fault, only=["put"]))
    batches = draft("a")
    placement = await opened.append(0, batches)
    assert await opened.read(placement, batches) == bytes_of(batches)


async def test_another_process_writes_behind_none_of_the_frames_of_this_one(opened: Opened) -> None:
    first = await opened.append(0, draft("a"))
    await opened.begin_again()
    second = await opened.append(1, draft("b"))
    assert first.locator != second.locator
    assert await opened.read(first, draft("a")) == bytes_of(draft("a"))


async def test_an_object_is_held_while_it_is_written_and_while_it_has_entries(opened: Opened) -> None:
    placements = [await opened.append(number, draft(f"{number}", [9000])) for number in range(12)]
    locators = list(dict.fromkeys(placement.locator for placement in placements))
    assert len(locators) >= 3 and all(map(opened.journal.holds, locators))
    first, second, *_, active = locators
    of_second = [number for number, one in enumerate(placements) if one.locator == second]
    await prune(opened.journal, of_second[-1])
    assert [opened.journal.holds(locator) for locator in (first, second, active)] == [False, True, True]
    await prune(opened.journal, len(placements))
    assert [opened.journal.holds(locator) for locator in (first, second, active)] == [False, False, True]
    assert not opened.journal.holds("log/0/00000000-0000-7000-8000-000000000000.log")


async def test_a_deleted_object_is_not_found(opened: Opened) -> None:
    placement = await opened.append(0, draft("a"))
    assert [one.locator for one in await opened.segments.objects()] == [placement.locator]
    await opened.begin_again()
    assert await opened.journal.append(1, entry(1)) == Appended(counts=True)
    await prune(opened.journal, 1)
    await opened.segments.delete([placement.locator])
    assert await opened.read(placement, draft("a")) == [None] * 3
    assert is_log(placement.locator)
    assert placement.locator not in [one.locator for one in await opened.segments.objects()]


async def prune(journal: Journal, end: int) -> None:
    start = await journal.start()
    await journal.raise_start(end)
    await journal.delete(range(start, end))
