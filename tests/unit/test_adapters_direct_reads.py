"""Large ranges that are read past the page cache: what is read so, and when its memory is used again."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from adapters.disk import BLOCK_BYTES, is_resident
from adapters.local_log.objects import LogFilesRead
from adapters.local_log.opening import LocalLog
from adapters.segments.direct_reads import (
    CHUNK_BYTES,
    MAX_BYTES,
    MIN_BYTES,
    DirectReads,
    ReadMemory,
    ReadOnce,
)
from adapters.segments.file_ranges import FileRanges, read_ranges
from adapters.threads import StoreThreads
from ledger.types import Position
from tests.support.direct_reads import DIRECT_FLAG, NotedReads, forget_pages
from tests.support.local_logs import NOW_MS, Written, opened_log
from tests.support.open_files import open_below

MIB: Final = 1 << 20
NAME: Final = "some"
CONTENT: Final = os.urandom(MIB) * 24 + os.urandom(4_321)

pytestmark = pytest.mark.skipif(not DIRECT_FLAG, reason="this system has no direct I/O")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NotedReads:
    (tmp_path / NAME).write_bytes(CONTENT)
    if not forget_pages(tmp_path / NAME):
        pytest.skip("this system keeps the file in memory, or does not say whether it does")
    return NotedReads(monkeypatch)


@pytest.fixture
def files(tmp_path: Path, disk: NotedReads) -> Iterator[FileRanges]:
    files = FileRanges(tmp_path, 4, lambda locator: True)
    yield files
    files.close()


def read(files: FileRanges, *pieces: tuple[int, int]) -> list[bytes | None]:
    """As the gateway does: what is in memory at once, the rest by a thread."""

    async def run() -> list[bytes | None]:
        threads = StoreThreads("test", 1)
        try:
            found = await read_ranges(files, threads, [Position(NAME, *piece) for piece in pieces])
            return [None if data is None else bytes(data) for data in found]
        finally:
            threads.shut()

    return asyncio.run(run())


def expected(*pieces: tuple[int, int]) -> list[bytes]:
    return [CONTENT[start : start + size] for start, size in pieces]


def test_where_the_system_does_not_say_what_is_in_memory_a_range_is_read_once_and_through_the_page_cache(
    files: FileRanges, disk: NotedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop has looked there, and the system reads ahead since."""
    monkeypatch.setattr("adapters.segments.file_ranges.is_resident", lambda *_: None)
    assert read(files, (5, MIB)) == expected((5, MIB))
    assert not disk.directs


@pytest.mark.parametrize(
    "piece",
    [
        (0, MIN_BYTES),
        (BLOCK_BYTES, MIB),
        (1, MIB),
        (BLOCK_BYTES - 1, MIB + 2),
        (5, MAX_BYTES),
        (len(CONTENT) - MIB, MIB),
    ],
)
def test_a_large_range_is_read_in_whole_blocks(
    files: FileRanges, disk: NotedReads, piece: tuple[int, int]
) -> None:
    assert read(files, piece) == expected(piece)
    ((at, size),) = disk.directs
    start, end = piece[0], sum(piece)
    assert at <= start < at + BLOCK_BYTES
    assert at + size - BLOCK_BYTES < end <= at + size


@pytest.mark.parametrize(("longest", "reads"), [(3 * BLOCK_BYTES, 86), (3 * BLOCK_BYTES + 5, 1)])
def test_short_reads_go_on(files: FileRanges, disk: NotedReads, longest: int, reads: int) -> None:
    """At the beginning of a block; elsewhere through the page cache."""
    disk.longest = longest
    assert read(files, (7, MIB)) == expected((7, MIB))
    assert len(disk.directs) == reads


def test_small_and_very_large_ranges_go_through_the_page_cache(files: FileRanges, disk: NotedReads) -> None:
    pieces = ((0, MIN_BYTES - 1), (MIB, MAX_BYTES + 1))
    assert read(files, *pieces) == expected(*pieces)
    assert not disk.directs


def test_what_is_read_again_is_kept_in_the_page_cache(files: FileRanges, disk: NotedReads) -> None:
    for _ in range(3):
        assert read(files, (0, MIB)) == expected((0, MIB))
    assert len(disk.directs) == 1
    # By a reader that is at the same place, but for a little.
    assert read(files, (5, MIB)) == expected((5, MIB))
    assert len(disk.directs) == 1
    # Further on than what the system reads ahead of these.
    assert read(files, (20 * MIB, MIB)) == expected((20 * MIB, MIB))
    assert len(disk.directs) == 2


def test_what_the_page_cache_has_is_read_from_it(files: FileRanges, disk: NotedReads, tmp_path: Path) -> None:
    read(files, (3 * MIB, 10))
    (tmp_path / NAME).read_bytes()
    assert read(files, (0, MIB)) == expected((0, MIB))
    assert not disk.directs


def test_to_ask_for_a_large_range_reads_nothing_into_the_page_cache(
    files: FileRanges, disk: NotedReads, tmp_path: Path
) -> None:
    """A read that must not wait would have the system read ahead, and then it would be read twice."""
    read(files, (0, MIB))
    found, left = files.read_resident([Position(NAME, 2 * MIB, MIB)])
    assert (found, left) == ([None], [0])
    assert read(files, (2 * MIB, MIB)) == expected((2 * MIB, MIB))
    assert len(disk.directs) == 2
    with (tmp_path / NAME).open("rb") as file:
        assert is_resident(file.fileno(), 2 * MIB, 16) is False
        assert is_resident(file.fileno(), 5 * MIB, MIB) is False


def test_a_file_that_is_being_written_is_read_through_the_page_cache(
    files: FileRanges, disk: NotedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [NAME]
    monkeypatch.setattr(files, "is_written", lambda locator: locator in written)
    assert read(files, (0, MIB)) == expected((0, MIB))
    assert not disk.directs


async def written_large(log: LocalLog, directory: Path, entries: int) -> Written:
    """Of which the page cache has nothing."""
    written = Written()
    for number in range(entries):
        await written.append(log, number, 600_000)
    for path in (directory / "log/0").glob("*.log"):
        forget_pages(path)
    return written


async def test_of_a_log_the_file_that_is_written_is_read_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_log(tmp_path) as log:
        written = await written_large(log, tmp_path, 9)
        disk = NotedReads(monkeypatch)
        await written.verify_batches(log)
    files = list(dict.fromkeys(at.locator for at in written.batches))
    assert len(files) > 1
    assert disk.opened == [str(tmp_path / locator) for locator in files[:-1]]


async def test_a_job_reads_log_files_that_have_ended_past_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which one the gateway writes it does not know: the newest, or the one before that."""
    async with opened_log(tmp_path, clock=count(NOW_MS).__next__) as log:
        written = await written_large(log, tmp_path, 18)
        disk = NotedReads(monkeypatch)
        job = LogFilesRead(tmp_path)
        found = await job.read(list(written.batches))
        # What is open needs no descriptor for a look at the directory.
        disk.listing_error = errno.EMFILE
        again = await job.read(list(written.batches))
        await job.close()
    for data in (found, again):
        assert [bytes(one or b"") for one in data] == list(written.batches.values())
    files = list(dict.fromkeys(at.locator for at in written.batches))
    assert len(files) > 2
    assert disk.listings <= 2
    assert disk.opened == [str(tmp_path / locator) for locator in files[:-2]]


@pytest.mark.parametrize("at_open", [True, False])
def test_a_file_system_without_such_reads(files: FileRanges, disk: NotedReads, at_open: bool) -> None:
    disk.open_error = disk.error = errno.EINVAL
    disk.open_error *= at_open
    for at in (0, MIB):
        assert read(files, (at, MIB)) == expected((at, MIB))
    assert not disk.directs
    # Not tried again.
    disk.open_error = disk.error = 0
    assert read(files, (9 * MIB, MIB)) == expected((9 * MIB, MIB))
    assert not disk.directs


def test_a_failing_disk_fails_the_read(files: FileRanges, disk: NotedReads) -> None:
    disk.error = errno.EIO
    with pytest.raises(Exception, match="disk reports an I/O error"):
        read(files, (0, MIB))
    disk.error = 0
    assert read(files, (MIB, MIB)) == expected((MIB, MIB))


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOENT, errno.EACCES])
def test_what_can_be_read_needs_no_second_descriptor(files: FileRanges, disk: NotedReads, error: int) -> None:
    """None may be left, or another process has deleted the file since it was opened."""
    disk.open_error = error
    assert read(files, (0, MIB)) == expected((0, MIB))
    disk.open_error = 0
    assert read(files, (20 * MIB, MIB)) == expected((20 * MIB, MIB))
    assert len(disk.directs) == 1


@pytest.mark.parametrize("size", [MIN_BYTES, 48_700, 100_000, 999_875])
def test_a_reader_that_goes_on_reads_all_of_it_past_the_cache(
    files: FileRanges, disk: NotedReads, size: int
) -> None:
    """Adjacent ranges share chunks, and the later one was not read for that."""
    for number in range(9):
        assert read(files, (5 + number * size, size)) == expected((5 + number * size, size))
    assert len(disk.directs) == 9


def test_past_the_end_there_is_nothing(files: FileRanges, disk: NotedReads) -> None:
    assert read(files, (len(CONTENT) - MIN_BYTES, 2 * MIN_BYTES)) == [None]


def test_both_descriptors_are_closed(files: FileRanges, disk: NotedReads, tmp_path: Path) -> None:
    read(files, (0, MIB))
    files.forget([NAME])
    assert not open_below(tmp_path)


def test_memory_is_used_again_when_no_view_of_it_is_left() -> None:
    memory = ReadMemory(8 * MIB)
    first = memory.take(MIB)
    first[:4] = b"abcd"
    kept = first[1:3]
    other = memory.take(MIB)
    other[:4] = b"wxyz"
    del first
    assert memory.free_bytes == 0 and bytes(kept) == b"bc"
    del other
    (freed,) = {memory.free_bytes}
    assert freed == MIB
    again = memory.take(MIB - 5)
    assert (len(again), bytes(again[:4]), memory.free_bytes, bytes(kept)) == (MIB - 5, b"wxyz", 0, b"bc")


@pytest.mark.parametrize("size", [MIN_BYTES, 200_001, 1_000_100, MIB + 1, MAX_BYTES + BLOCK_BYTES])
def test_a_piece_takes_an_eighth_more_at_most(size: int) -> None:
    memory = ReadMemory(2 * MAX_BYTES)
    assert len(memory.take(size)) == size
    assert size <= memory.free_bytes <= max(size * 9 / 8, size + 4 * BLOCK_BYTES)


def test_the_memory_that_is_kept_is_bounded() -> None:
    memory = ReadMemory(3 * MIB)
    views = [memory.take(size) for size in (MIB, 2 * MIB, MIB, 300_000)]
    views.clear()
    assert 0 < memory.free_bytes <= 3 * MIB


def test_the_memory_that_was_wanted_last_is_kept() -> None:
    memory = ReadMemory(3 * MIB)
    small, large, more = (memory.take(size) for size in (300_000, 2 * MIB, MIB))
    del small, large
    small = memory.take(300_000)
    del small, more
    before = memory.free_bytes
    assert before < 2 * MIB
    taken = [memory.take(300_000), memory.take(MIB)]
    assert memory.free_bytes == 0 and len(taken) == 2


def test_threads_never_share_memory() -> None:
    memory, failures = ReadMemory(4 * MIB), list[str]()

    def work(mark: int) -> None:
        for _ in range(300):
            view = memory.take(MIN_BYTES)
            view[:8] = view[-8:] = bytes([mark]) * 8
            part = view[:8]
            del view
            if bytes(part) != bytes([mark]) * 8:
                failures.append("changed")

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert memory.free_bytes <= 4 * MIB


def test_what_was_read_once_is_known_in_chunks() -> None:
    once = ReadOnce()
    assert not once.note(5, 10 * CHUNK_BYTES)
    assert once.note(3 * CHUNK_BYTES, 2 * CHUNK_BYTES)
    # Less than half of it was read before.
    assert not once.note(8 * CHUNK_BYTES, 10 * CHUNK_BYTES)
    for at in (MIN_BYTES - 1, 2**31 - MIN_BYTES):
        assert not ReadOnce().note(at, MIN_BYTES)
    once.note(2**31 - MIN_BYTES, MIN_BYTES)
    assert once.note(2**31 - MIN_BYTES, MIN_BYTES)


def test_sizes_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (MIN_BYTES - 1, MIN_BYTES, MAX_BYTES, MAX_BYTES + 1)
    assert [DirectReads().takes(size) for size in sizes] == [False, True, True, False]
    monkeypatch.delattr(os, "O_DIRECT")
    assert not DirectReads().takes(MIN_BYTES)
