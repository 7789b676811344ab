"""What a gateway asks of the C library's allocator and of Python's garbage collector.

Both are set for programs with small buffers and many short-lived objects in cycles. A gateway moves buffers
of a megabyte all the time, and makes almost no cycles (docs/decisions/0009-hot-path.md).
"""

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable, Mapping
from typing import Final

MIB: Final = 1024 * 1024

# <malloc.h> of glibc, and what is set. By default every buffer above 128 KiB is mapped, its pages faulted in
# and zeroed, and unmapped: for a megabyte that costs more than all else that is done with it.
_M_TRIM_THRESHOLD: Final = (-1, 1024 * MIB)
_M_TOP_PAD: Final = (-2, 16 * MIB)
_M_MMAP_THRESHOLD: Final = (-3, 32 * MIB)
_M_ARENA_MAX: Final = (-8, 1)

COLLECTOR: Final = (20_000, 5, 4_000)
"""Containers made, less those let go, before the young are looked at; times that, before the older are. The
older are at most 100,000 then, which takes about 10 ms."""
CALM_S: Final = 10.0
CALM_BYTES: Final = 16 * MIB
"""When no more than this comes and goes in so long, what the allocator keeps for more is given back."""
BUSY_BYTES: Final = 64 * MIB
"""It has been busy before if so much came and went."""


def tune_allocator(environment: Mapping[str, str]) -> bool:
    """Keep freed buffers for the next ones. To be called before there are threads. False, and nothing is
    changed, where the C library is not glibc or the operator has chosen for himself."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in environment):
        return False
    libc = _glibc()
    if libc is None:
        return False
    for setting, value in (_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX):
        libc.mallopt(setting, value)
    return True


def tune_collector() -> None:
    """To be called when everything is open: what is there now stays, and is never looked at again. What
    opening took and needs no longer is given back."""
    gc.collect()
    give_back()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)


def give_back() -> None:
    """Let the system have the pages that nothing lies in."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


async def give_back_when_calm(moved_bytes: Callable[[], float], calm_s: float = CALM_S) -> None:
    """Until cancelled: whenever a busy time is over, give back the memory that it needed. `moved_bytes`
    tells how much has come and gone in all."""
    seen = given_back_at = moved_bytes()
    while True:
        await asyncio.sleep(calm_s)
        before, seen = seen, moved_bytes()
        if seen - before <= CALM_BYTES and seen - given_back_at >= BUSY_BYTES:
            given_back_at = seen
            await asyncio.to_thread(give_back)


def _glibc() -> ctypes.CDLL | None:
    if os.name != "posix":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
