"""Ranges of files: what is in memory is read at once, the rest by threads of the store."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from adapters import disk
from adapters.segments.file_ranges import MAX_RESIDENT_BYTES, FileRanges, read_ranges
from adapters.threads import StoreThreads
from ledger.types import Position
from tests.support.open_files import open_below

NAME = "some"
BYTES = os.urandom(300_000)


class CountedThreads(StoreThreads):
    """Threads of a store, and how many calls they have made."""

    def __init__(self) -> None:
        super().__init__("test", 1)
        self.calls = 0

    async def read(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return await super().read(call, *args, **kwargs)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(BYTES)
    return path


@pytest.fixture
def files(path: Path) -> Iterator[FileRanges]:
    files = FileRanges(path.parent, 4, lambda locator: True)
    yield files
    files.close()


def read(files: FileRanges, *pieces: tuple[int, int]) -> tuple[list[bytes | None], int]:
    """What was read, and how many calls threads have made for it."""

    async def run() -> tuple[list[bytes | None], int]:
        threads = CountedThreads()
        found = await read_ranges(files, threads, [Position(NAME, *piece) for piece in pieces])
        threads.shut()
        return [None if data is None else bytes(data) for data in found], threads.calls

    return asyncio.run(run())


def expected(pieces: Sequence[tuple[int, int]]) -> list[bytes]:
    return [BYTES[start : start + size] for start, size in pieces]


def test_an_open_file_in_memory_is_read_without_a_thread(files: FileRanges) -> None:
    pieces = [(0, 10), (200_000, 100_000), (10, 90_000)]
    assert read(files, *pieces) == (expected(pieces), 1)  # opened
    assert read(files, *pieces) == (expected(pieces), 0)


@pytest.mark.parametrize("kept_mib", [0, 6])
def test_what_is_not_all_in_memory_is_read_by_a_thread(files: FileRanges, path: Path, kept_mib: int) -> None:
    mib = 1 << 20
    content = os.urandom(mib) * 12
    path.write_bytes(content)
    read(files, (0, 1))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), kept_mib * mib, 0, os.POSIX_FADV_DONTNEED)
    assert read(files, (5 * mib + 7, 3 * mib)) == ([content[5 * mib + 7 : 8 * mib + 7]], 1)


def test_what_the_file_does_not_have_is_none_as_a_thread_says(files: FileRanges) -> None:
    pieces = ((299_990, 20), (400_000, 5), (-1, 5), (0, 5))
    by_thread = files.read([Position(NAME, *piece) for piece in pieces])
    assert by_thread[:3] == [None, None, None]
    assert read(files, *pieces) == ([None, None, None, BYTES[:5]], 0)


def test_no_more_is_read_at_once_than_the_bound(files: FileRanges, path: Path) -> None:
    size = MAX_RESIDENT_BYTES // 2
    path.write_bytes(bytes(4 * size))
    read(files, (0, 1))
    found, left = files.read_resident([Position(NAME, i * size, size) for i in range(4)])
    assert [data is not None for data in found] == [True, True, False, False]
    assert left == [2, 3]


def test_while_a_thread_opens_a_file_nothing_waits_for_it(files: FileRanges, path: Path) -> None:
    read(files, (0, 1))
    os.mkfifo(path.parent / "pipe")
    # To open a pipe takes until something writes into it.
    opening = threading.Thread(target=files.read, args=([Position("pipe", 0, 1)],))
    opening.start()
    try:
        for _ in range(100):
            assert files.read_resident([Position(NAME, 0, 5)])[1] == []
            files.forget(["other"])
            time.sleep(0.001)
        assert opening.is_alive()
    finally:
        (path.parent / "pipe").open("wb").close()
        opening.join()


def test_a_file_that_is_deleted_while_it_is_opened_is_not_kept_open(
    files: FileRanges, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = os.open

    def open_slowly(opened: Path, flags: int) -> int:
        fd = open_file(opened, flags)
        path.unlink()
        files.forget([NAME])
        return fd

    monkeypatch.setattr(os, "open", open_slowly)
    assert files.read([Position(NAME, 0, 5)]) == [BYTES[:5]]
    monkeypatch.undo()
    assert not open_below(path.parent)


def test_of_two_threads_that_open_a_file_one_keeps_it(
    files: FileRanges, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file, both = os.open, threading.Barrier(2)

    def open_together(opened: Path, flags: int) -> int:
        both.wait(10)
        return open_file(opened, flags)

    monkeypatch.setattr(os, "open", open_together)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.extend(files.read([Position(NAME, 0, 5)]))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    monkeypatch.undo()
    assert found == [BYTES[:5]] * 2
    assert open_below(path.parent) == [str(path)]


def test_a_system_without_such_reads_has_threads(files: FileRanges, monkeypatch: pytest.MonkeyPatch) -> None:
    read(files, (0, 1))
    monkeypatch.setattr(disk, "NO_WAIT", None)
    assert read(files, (5, 5)) == (expected([(5, 5)]), 1)


def test_a_file_system_without_such_reads_has_threads(
    files: FileRanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(files, (0, 1))
    # A flag that the kernel does not know.
    monkeypatch.setattr(disk, "NO_WAIT", 1 << 30)
    assert read(files, (5, 5)) == (expected([(5, 5)]), 1)


def test_a_file_that_was_deleted_is_not_read_any_more(files: FileRanges, path: Path) -> None:
    read(files, (0, 1))
    path.unlink()
    files.forget([NAME])
    assert read(files, (0, 5)) == ([None], 1)


def test_what_was_read_is_not_to_be_changed(files: FileRanges) -> None:
    read(files, (0, 1))
    for size in (10, 100_000):
        (data,), _ = files.read_resident([Position(NAME, 0, size)])
        assert memoryview(data or b"").readonly
