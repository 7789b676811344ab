"""Reads past the page cache of the system, into memory that is used again. Plain blocking calls.

What comes through the page cache takes pages for it, which a virtual machine may have to get from its host
first, and is copied once more. A consumer that catches up reads each byte once, and no other read uses these
pages. What is read a second time, by other consumers, is better kept there
(docs/decisions/0079-reads-past-the-page-cache.md).
"""

import ctypes
import mmap
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from adapters.disk import BLOCK_BYTES, NO_DIRECT_IO
from ledger.formats.local_log import aligned

MIN_BYTES: Final = 32 * 1024
"""Of a read. For less of it the system reads ahead, which a read past its cache does not have."""
MAX_BYTES: Final = 4 * 1024 * 1024
FREE_BYTES: Final = 32 * 1024 * 1024
"""Kept for the next reads, of the whole process."""
CHUNK_BYTES: Final = 16 * 1024
"""So fine is it known what of a file was read."""


class ReadOnce:
    """What of one file was read past the cache, in chunks."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks = 0

    def note(self, start: int, size: int) -> bool:
        """Note a read of at least MIN_BYTES. Whether half of it or more was noted before."""
        # Those that are in it as a whole: it shares the others with what comes before and after it.
        first, end = -(-start // CHUNK_BYTES), (start + size) // CHUNK_BYTES
        wanted = ((1 << (end - first)) - 1) << first
        known = (self._chunks & wanted).bit_count()
        self._chunks |= wanted
        return 2 * known >= end - first


class DirectReads:
    """Of the files of one directory. Used by many threads."""

    def __init__(self) -> None:
        self.is_possible = hasattr(os, "O_DIRECT") and hasattr(os, "preadv")

    def takes(self, size: int) -> bool:
        """Whether a read of so many bytes is better made here."""
        return self.is_possible and MIN_BYTES <= size <= MAX_BYTES

    def open(self, path: str | os.PathLike[str]) -> int:
        """A descriptor for such reads, or -1: the file system has none, no more files may be open, or the
        file has lost its name since it was opened for other reads, which go on."""
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as error:
            self.is_possible = self.is_possible and error.errno not in NO_DIRECT_IO
        return -1

    def read(self, fd: int, start: int, size: int) -> memoryview | None:
        """The bytes [start, start + size), at most MAX_BYTES; None if such reads do not give all of them, as
        past the end of a file. Their memory is used again when no view of it is left. OSError."""
        first = start - start % BLOCK_BYTES
        skipped = start - first
        wanted = aligned(skipped + size, BLOCK_BYTES)
        memory = READ_MEMORY.take(wanted)
        have = 0
        try:
            while have < skipped + size:
                count = os.preadv(fd, [memory[have:wanted]], first + have)
                have += count
                if not count or count % BLOCK_BYTES:
                    break  # the file ends there, or a file system has less for one call
        except OSError as error:
            if error.errno not in NO_DIRECT_IO:
                raise
            self.is_possible = False
            return None
        return memory[skipped : skipped + size].toreadonly() if have >= skipped + size else None


class ReadMemory:
    """Pieces of memory that begin at a page. Used by many threads."""

    def __init__(self, free_bytes: int) -> None:
        self._max_free_bytes = free_bytes
        self._lock = threading.Lock()
        self._free: OrderedDict[int, list[mmap.mmap]] = OrderedDict()
        """By their capacity, those that were wanted last at the end."""
        self.free_bytes = 0

    def take(self, size: int) -> memoryview:
        """So many bytes, with anything in them; they take up to an eighth or 16 KiB more. They are free again
        when no view of them is left."""
        capacity = _capacity_of(size)
        with self._lock:
            pages = self._free_of(capacity)
        if pages is None:
            pages = mmap.mmap(-1, capacity)
        lease = _lease_of(capacity).from_buffer(pages)
        lease.lend(pages, self)
        return memoryview(lease).cast("B")[:size]

    def give_back(self, pages: mmap.mmap) -> None:
        """Called when nothing refers to what was in them, by whichever thread let it go: perhaps by one that
        is in `take`, so this waits for no lock."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self.free_bytes += len(pages)
            self._free.setdefault(len(pages), []).append(pages)
            while self.free_bytes > self._max_free_bytes:
                capacity, unused = next(iter(self._free.items()))
                if unused:
                    self.free_bytes -= len(unused.pop())
                if not unused:
                    del self._free[capacity]
        finally:
            self._lock.release()

    def _free_of(self, capacity: int) -> mmap.mmap | None:
        found = self._free.get(capacity)
        if not found:
            return None
        self._free.move_to_end(capacity)
        self.free_bytes -= capacity
        return found.pop()


class _Lease(ctypes.Array[ctypes.c_ubyte]):
    """Pages that are lent: every view of them refers to it."""

    _length_ = 0
    _type_ = ctypes.c_ubyte

    def lend(self, pages: mmap.mmap, memory: ReadMemory) -> None:
        self._pages, self._memory = pages, memory

    def __del__(self) -> None:
        # Not there if its memory was never lent.
        with suppress(AttributeError):
            self._memory.give_back(self._pages)


_LEASES: Final[dict[int, type[_Lease]]] = {}


def _capacity_of(size: int) -> int:
    """Eight capacities for each doubling: what is read next has seldom exactly this size."""
    step = max(1 << max(size.bit_length() - 4, 0), 4 * BLOCK_BYTES)
    return aligned(size, step)


def _lease_of(capacity: int) -> type[_Lease]:
    """A ctypes class has one length."""
    found = _LEASES.get(capacity)
    if found is None:
        found = _LEASES[capacity] = type(
            "_Lease", (_Lease,), {"_length_": capacity, "_type_": ctypes.c_ubyte}
        )
    return found


READ_MEMORY: Final = ReadMemory(FREE_BYTES)
