"""Writes past the page cache of the system: whole blocks, from memory of the log's own. Plain blocking
calls."""

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from adapters.disk import BLOCK_BYTES, NO_DIRECT_IO
from ledger.formats.local_log import aligned
from ledger.types import Buffer

PIECE_BYTES: Final = 4 * 1024 * 1024
"""Written at a time."""


class DirectWrites:
    """For the files of one log, one after the other. Used by one thread at a time."""

    def __init__(self) -> None:
        self.is_possible = hasattr(os, "O_DIRECT") and hasattr(os, "RWF_DSYNC")
        self._memory: _Memory | None = None

    def open(self, path: Path) -> int:
        """A descriptor for such writes, or -1. They are not possible where the file system has none; any
        other error, as when too many files are open, may be over by the next write."""
        try:
            return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as error:
            self.is_possible = error.errno not in NO_DIRECT_IO
        return -1

    def write(self, fd: int, parts: Sequence[Buffer], position: int) -> bytes | None:
        """Write buffers back to back at `position`, the beginning of a block, and zeros up to the end of the
        last block; durable in the same step. Returns what the last block has of the buffers, if that is not
        all of it; None if such writes are not possible here. After an OSError it is unknown which of their
        bytes are there."""
        if self._memory is None:
            self._memory = _Memory()
        left = [memoryview(part).cast("B") for part in reversed(parts) if len(part)]
        size = 0
        try:
            while left:
                size = self._memory.load(left)
                position += self._memory.write(fd, size, position)
        except OSError as error:
            if error.errno not in NO_DIRECT_IO:
                raise
            self.is_possible = False
            return None
        return self._memory.last(size % BLOCK_BYTES, size)

    def close(self) -> None:
        self._memory = None


class _Memory:
    """What is written comes from here: it begins at a page, as the system wants it."""

    def __init__(self) -> None:
        """OSError."""
        # Shared memory, the default, has no huge pages on most systems.
        pages = mmap.mmap(-1, PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):
                # Fewer pages are to be looked up for each write.
                pages.madvise(mmap.MADV_HUGEPAGE)
        self._view = memoryview(pages)

    def load(self, left: list[memoryview]) -> int:
        """Take the next buffers, of which the last of the list is the first. Returns how many bytes."""
        size = 0
        while left and size < PIECE_BYTES:
            part = left.pop()
            end = size + len(part)
            if end > PIECE_BYTES:
                left.append(part[PIECE_BYTES - size :])
                part, end = part[: PIECE_BYTES - size], PIECE_BYTES
            self._view[size:end] = part
            size = end
        return size

    def write(self, fd: int, size: int, position: int) -> int:
        """The first `size` bytes of it, durably. Returns how many bytes were written, with the zeros."""
        end = aligned(size, BLOCK_BYTES)
        self._view[size:end] = bytes(end - size)
        written = 0
        while written < end:
            written += os.pwritev(fd, [self._view[written:end]], position + written, os.RWF_DSYNC)
        return end

    def last(self, count: int, size: int) -> bytes:
        """The last `count` of the first `size` bytes."""
        return bytes(self._view[size - count : size])
