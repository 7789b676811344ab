"""Clocks and random values of the host. Every other module gets them from its caller (`gateway/world.py`), or
from here by default."""

import os
import socket
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeAlias

Milliseconds: TypeAlias = Callable[[], int]
Seconds: TypeAlias = Callable[[], float]
RandomBytes: TypeAlias = Callable[[int], bytes]
"""From a number to that many random bytes."""

ThreadPool: TypeAlias = Callable[[int, str], Executor]
"""From a number of threads and their name to what runs calls in them."""

COUNTS_SUSPEND: Final = hasattr(time, "CLOCK_BOOTTIME")
_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

precise_s: Final[Seconds] = time.perf_counter
"""For durations within one iteration of the event loop, in which the loop's clock may stand still."""
cpu_s: Final[Seconds] = time.thread_time
"""CPU time of the calling thread."""


def clock_ms() -> int:
    """Unix time, as the host has it."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """Time since boot, with the time that the host was suspended where the system counts it
    (`COUNTS_SUSPEND`)."""
    return time.clock_gettime_ns(_BOOT) // 1_000_000


def random_bytes(count: int) -> bytes:
    """Unpredictable, from the kernel."""
    return os.urandom(count)


def uuid4_of(random: RandomBytes) -> uuid.UUID:
    return uuid.UUID(bytes=random(16), version=4)


def dice_of(random: RandomBytes) -> Callable[[], float]:
    """Numbers in [0, 1)."""
    return lambda: int.from_bytes(random(4), "big") / (1 << 32)


def new_uuid4() -> uuid.UUID:
    return uuid4_of(random_bytes)


def host_name() -> str:
    """What this machine calls itself."""
    return socket.gethostname()


def thread_pool(threads: int, name: str) -> Executor:
    return ThreadPoolExecutor(threads, thread_name_prefix=name)
