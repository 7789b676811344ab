"""Puts what the process keeps in memory into huge pages.

A gateway that is woken for one record finds the processor's caches cold. With pages of 4 KiB it also waits
for the addresses of thousands of pages, in a virtual machine for those of the host too. Linux since 6.1 makes
a huge page of what is in memory at a request (MADV_COLLAPSE); by itself it seldom does
(docs/decisions/0076-memory-in-huge-pages.md). Where it does not, nothing changes.
"""

import asyncio
import ctypes
import errno
import mmap
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

SIZE: Final = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
MAPS: Final = Path("/proc/self/maps")
STATM: Final = Path("/proc/self/statm")
MAX_SIZE: Final = 32 * 1024 * 1024
"""Larger ones, of systems with pages of 64 KiB, would mostly be empty."""
MADV_COLLAPSE: Final = 25
"""Of <linux/mman.h>; the module `mmap` does not know it."""
FULL_SHARE: Final = 0.5
"""So much of a huge page has to be in memory before: the rest is memory that it adds."""
SLICE_S: Final = 0.001
PAUSE_FACTOR: Final = 4
HEAP: Final = "[heap]"
NAMED: Final = "[anon:"


def huge_page_bytes() -> int:
    """0 where there are none, or none of use."""
    if sys.platform != "linux":
        return 0
    try:
        size = int(SIZE.read_text())
    except (OSError, ValueError):
        return 0
    return size if size <= MAX_SIZE else 0


def resident_bytes() -> int:
    """What the process has in memory; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(STATM.read_text().split()[1]) * mmap.PAGESIZE
    return 0


async def use_huge_pages(size: int) -> int:
    """Make huge pages of `size` bytes of what is in memory and has no file. Returns how many there are then,
    of those that were half full or more. A new one takes a millisecond, on some hosts ten, in which who needs
    its memory waits; so they are made one at a time by another thread, with longer pauses than that."""
    starts = iter(await asyncio.to_thread(_pieces, size))
    found, is_more = 0, True
    while is_more:
        began = time.perf_counter()
        some, is_more = await asyncio.to_thread(_use_some, starts, size)
        found += some
        await asyncio.sleep(PAUSE_FACTOR * (time.perf_counter() - began))
    return found


def _use_some(starts: Iterator[int], size: int) -> tuple[int, bool]:
    """Returns after SLICE_S: how many huge pages there are now, and whether there may be more."""
    libc = ctypes.CDLL(None, use_errno=True)
    resident = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    found, until = 0, time.perf_counter() + SLICE_S
    for start in starts:
        if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), resident):
            # Unmapped since.
            continue
        if bytes(resident).count(1) < FULL_SHARE * len(resident):
            continue
        if not libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_COLLAPSE):
            found += 1
        elif ctypes.get_errno() == errno.ENOMEM:
            # None is free, or the group of processes may have no more.
            break
        if time.perf_counter() > until:
            return found, True
    return found, False


def _pieces(size: int) -> list[int]:
    """Where a huge page may begin, in private memory without a file. None where the system does not say."""
    found = list[int]()
    try:
        lines = MAPS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
        is_anonymous = not name or name[0] == HEAP or name[0].startswith(NAMED)
        if not is_anonymous or rights != "rw-p" or inode != "0":
            continue
        first, last = (int(address, 16) for address in addresses.split("-"))
        found += range(-(-first // size) * size, last - size + 1, size)
    return found
