"""Ranges of files whose bytes do not change, read by position.

What the page cache of the system has is read on the event loop's thread, which needs no hand-over, and whose
caches then have the bytes that are checked and sent next. Everything else is read by threads of the store: no
disk is waited for on the event loop. A large range that is read for the first time goes past the page cache.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from adapters.disk import explain, is_resident, read_at, read_resident
from adapters.segments.direct_reads import DirectReads, ReadOnce
from adapters.segments.ranges import MergedRange, merge_adjacent
from adapters.threads import Threads
from ledger.types import Buffer, Position

MAX_RESIDENT_BYTES: Final = 8 * 1024 * 1024
"""Read at once on the event loop's thread: about 2 ms."""
RangeReader: TypeAlias = Callable[[int, int, int], Buffer | None]
"""Reads the bytes [start, start + size) of a descriptor; None if they are not in memory."""


async def read_ranges(
    files: "FileRanges", threads: Threads, positions: Sequence[Position]
) -> Sequence[Buffer | None]:
    """The bytes of each position; None where file or range is not there."""
    found, left = files.read_resident(positions)
    if left:
        stored = await threads.read(files.read, [positions[index] for index in left])
        for index, data in zip(left, stored, strict=True):
            found[index] = data
    return found


@dataclass(slots=True)
class _ReadFile:
    fd: int
    users: int = 0
    is_evicted: bool = False
    direct_fd: int = -1
    """For reads past the page cache, from the first one on."""
    read_once: ReadOnce = field(default_factory=ReadOnce)

    def close(self) -> None:
        os.close(self.fd)
        if self.direct_fd >= 0:
            os.close(self.direct_fd)


class FileRanges:
    """Reads ranges of files below a directory, with a bounded number of them kept open. Used by many
    threads."""

    def __init__(self, root: Path, max_open: int, is_known: Callable[[str], bool], max_gap: int = 0) -> None:
        """Nothing is read of a locator that is not `is_known`. Of what no position wants, `max_gap`
        bytes between two of them may be read too."""
        self._root = root
        self._max_open = max_open
        self._is_known = is_known
        self._max_gap = max_gap
        self._files: OrderedDict[str, _ReadFile] = OrderedDict()
        self._forgets = 0
        """How often files were forgotten."""
        self._direct = DirectReads()
        self._lock = threading.Lock()

    def read(self, positions: Sequence[Position]) -> list[Buffer | None]:
        """The bytes of each position; None where file or range is not there."""
        found: list[Buffer | None] = [None] * len(positions)
        for merged in merge_adjacent(positions, self._max_gap):
            try:
                self._read_merged(merged, positions, found)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise explain(error, "read the file", self._root / merged.locator) from error
        return found

    def read_resident(self, positions: Sequence[Position]) -> tuple[list[Buffer | None], list[int]]:
        """What can be read of files that are open without waiting for a disk, at most MAX_RESIDENT_BYTES; and
        the indices of the positions that are left."""
        found: list[Buffer | None] = [None] * len(positions)
        left: list[int] = []
        free = MAX_RESIDENT_BYTES
        for merged in merge_adjacent(positions, self._max_gap):
            free -= merged.size
            if free < 0 or not self._read_merged_resident(merged, positions, found):
                left += [index for index, _ in merged.pieces]
        return found, left

    def is_still(self, fd: int, locator: str, read: RangeReader = read_at) -> bool | None:
        """Whether the file is that of the locator, after it was read. A file that is used again under another
        name is not. None if `read` has not found that out."""
        return True

    def is_written(self, locator: str) -> bool:
        """Whether its file may be being written: a read past the page cache would make the writer wait."""
        return False

    def forget(self, locators: Sequence[str]) -> None:
        """Keep these files open no longer."""
        with self._lock:
            self._forgets += 1
            for locator in locators:
                file = self._files.pop(locator, None)
                if file is not None:
                    self._evict(file)

    def close(self) -> None:
        with self._lock:
            while self._files:
                self._evict(self._files.popitem()[1])

    def _read_merged(
        self, merged: MergedRange, positions: Sequence[Position], found: list[Buffer | None]
    ) -> None:
        if not self._is_known(merged.locator):
            return
        file = self._acquire(merged.locator)
        try:
            # A read allocates its size, so it requests no more than there is.
            size = min(merged.size, os.fstat(file.fd).st_size - merged.start)
            data = self._read_file(file, merged, size) if size > 0 else memoryview(b"")
            is_still = self.is_still(file.fd, merged.locator)
        finally:
            self._release(file)
        if not is_still:
            self.forget([merged.locator])
        elif size >= 0:
            _take_pieces(merged, positions, data, found)

    def _read_file(self, file: _ReadFile, merged: MergedRange, size: int) -> memoryview:
        # Where the system does not say, the page cache has it: the event loop has looked there, and the
        # system reads ahead since.
        if self._is_direct(merged, size) and is_resident(file.fd, merged.start, size) is False:
            fd = self._direct_fd(file, merged, size)
            data = self._direct.read(fd, merged.start, size) if fd >= 0 else None
            if data is not None:
                return data
        return memoryview(read_at(file.fd, merged.start, size))

    def _direct_fd(self, file: _ReadFile, merged: MergedRange, size: int) -> int:
        """For this read, or -1 if the page cache shall have it."""
        with self._lock:
            was_read = file.read_once.note(merged.start, size)
            if was_read or file.direct_fd >= 0:
                return -1 if was_read else file.direct_fd
        opened = self._direct.open(self._root / merged.locator)
        with self._lock:
            if file.direct_fd < 0:
                file.direct_fd, opened = opened, -1
        if opened >= 0:
            # Another thread was quicker.
            os.close(opened)
        return file.direct_fd

    def _is_direct(self, merged: MergedRange, size: int) -> bool:
        return self._direct.takes(size) and not self.is_written(merged.locator)

    def _read_merged_resident(
        self, merged: MergedRange, positions: Sequence[Position], found: list[Buffer | None]
    ) -> bool:
        # A thread that holds it may be waiting for a processor.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            file = self._files.get(merged.locator)
            if file is None:
                return False
            self._files.move_to_end(merged.locator)
            size = min(merged.size, os.fstat(file.fd).st_size - merged.start)
            if self._is_direct(merged, size) and is_resident(file.fd, merged.start, size) is False:
                # Its part that is there is not worth to be read twice.
                return False
            data = read_resident(file.fd, merged.start, size) if size > 0 else memoryview(b"")
            is_still = self.is_still(file.fd, merged.locator, read_resident)
        finally:
            self._lock.release()
        if data is None or not is_still:
            return False
        if size >= 0:
            _take_pieces(merged, positions, data, found)
        return True

    def _acquire(self, locator: str) -> _ReadFile:
        with self._lock:
            file, forgets = self._files.get(locator), self._forgets
            if file is not None:
                return self._used(locator, file)
        # Without the lock, for which the event loop waits when files are deleted.
        opened = _ReadFile(os.open(self._root / locator, os.O_RDONLY | os.O_CLOEXEC))
        with self._lock:
            file = self._files.get(locator)
            if file is None and forgets != self._forgets:
                # It may have been this file that was deleted meanwhile: no later call would forget it.
                opened.users, opened.is_evicted = 1, True
                return opened
            if file is None:
                file = self._files[locator] = opened
                if len(self._files) > self._max_open:
                    self._evict(self._files.popitem(last=False)[1])
            self._used(locator, file)
        if file is not opened:
            # Another thread was quicker.
            opened.close()
        return file

    def _used(self, locator: str, file: _ReadFile) -> _ReadFile:
        self._files.move_to_end(locator)
        file.users += 1
        return file

    def _release(self, file: _ReadFile) -> None:
        with self._lock:
            file.users -= 1
            if file.is_evicted and not file.users:
                file.close()

    def _evict(self, file: _ReadFile) -> None:
        # A file in use is closed by its last user: its number must not come to mean another file.
        file.is_evicted = True
        if not file.users:
            file.close()


def _take_pieces(
    merged: MergedRange, positions: Sequence[Position], data: memoryview, found: list[Buffer | None]
) -> None:
    for index, offset in merged.pieces:
        end = offset + positions[index].size
        if end <= len(data):
            found[index] = data[offset:end]
