"""Settings of the C library's allocator and of Python's garbage collector.

Both are set for programs with small buffers and many short-lived objects in cycles. A gateway moves buffers
of a megabyte all the time, and makes almost no cycles (docs/decisions/0009-hot-path.md).
"""

import asyncio
import ctypes
import gc
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from gateway.cli.huge_pages import huge_page_bytes, resident_bytes, use_huge_pages

log = structlog.get_logger()

MIB: Final = 1024 * 1024

# <malloc.h> of glibc, and our values. By default every buffer above 128 KiB is mapped, its pages faulted in
# and zeroed, and unmapped: for a megabyte that costs more than all other work on it.
_M_TRIM_THRESHOLD: Final = (-1, 1024 * MIB)
_M_TOP_PAD: Final = (-2, 16 * MIB)
_M_MMAP_THRESHOLD: Final = (-3, 32 * MIB)
_M_ARENA_MAX: Final = (-8, 1)

COLLECTOR: Final = (20_000, 1, 12_000)
"""Thresholds of `gc.set_threshold`: containers allocated less those freed, before generation 0 is collected,
and how many collections of one generation before the next. Generations 0 and 1 have at most 60,000 containers
then, which takes about 5 ms."""
CALM_S: Final = 10.0
CALM_BYTES: Final = 16 * MIB
"""At most this traffic within CALM_S is a calm time: free memory is returned to the system."""
BUSY_BYTES: Final = 64 * MIB
"""At least this traffic since the last return is a busy time."""
CHANGED_BYTES: Final = 16 * MIB
CHANGED_SHARE: Final = 0.25
"""After so much memory has come or gone, and so much of what there was, it is put into huge pages again."""
BUSY_PUT_S: Final = 600.0
"""In a busy time not more often than this: most of what comes and goes then are buffers of what passes
through, and to put a buffer into a huge page copies it for nothing."""


def tune_allocator(environment: Mapping[str, str]) -> bool:
    """Keep freed buffers for the next ones. Call this before there are threads. False, without a change,
    where the C library is not glibc or the environment has settings of its own."""
    if has_own_allocator(environment):
        return False
    libc = _glibc()
    if libc is None:
        return False
    for setting, value in (_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX):
        libc.mallopt(setting, value)
    return True


def has_own_allocator(environment: Mapping[str, str]) -> bool:
    """Whether the operator has settings of the allocator: then how memory is used is left to them."""
    return any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in environment)


def relax_collector() -> None:
    """Call this before anything is opened: a start makes millions of objects that stay, and the collector
    would go through all of them again and again."""
    gc.set_threshold(*COLLECTOR)


def tune_collector() -> None:
    """Call this when everything is open: present objects are never collected again. Memory that only opening
    needed is returned to the system."""
    gc.collect()
    give_back()
    gc.freeze()


def give_back() -> None:
    """Return free pages to the system."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


async def tend_memory(
    moved_bytes: Callable[[], float],
    *,
    in_huge_pages: bool,
    look_s: float = CALM_S,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Until cancelled: after each busy time return its memory to the system, and keep what stays in huge
    pages. `moved_bytes` is the traffic so far."""
    huge_page = huge_page_bytes() if in_huge_pages else 0
    seen = given_back_at = moved_bytes()
    put_at, put_when = -math.inf, -math.inf
    while True:
        # First: a process that ends soon is spared it, and clients that connect at the start do not wait.
        await asyncio.sleep(look_s)
        before, seen = seen, moved_bytes()
        now = clock()
        if seen - before <= CALM_BYTES and seen - given_back_at >= BUSY_BYTES:
            given_back_at = seen
            await asyncio.to_thread(give_back)
            # Huge pages of which parts were free are none any more.
            put_at = -math.inf
        if not huge_page or (seen - before >= BUSY_BYTES and now - put_when < BUSY_PUT_S):
            continue
        if abs(resident_bytes() - put_at) >= max(CHANGED_BYTES, CHANGED_SHARE * put_at):
            pages = await use_huge_pages(huge_page)
            put_at, put_when = resident_bytes(), now
            log.debug("process.huge_pages", bytes=pages * huge_page, resident_bytes=put_at)


def _glibc() -> ctypes.CDLL | None:
    if os.name != "posix":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
