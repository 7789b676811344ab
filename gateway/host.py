"""Clocks, random values and child processes of the host. Every other module gets them from its caller
(`gateway/world.py`), or from here by default."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

Milliseconds: TypeAlias = Callable[[], int]
Seconds: TypeAlias = Callable[[], float]
RandomBytes: TypeAlias = Callable[[int], bytes]
"""From a number to that many random bytes."""

ThreadPool: TypeAlias = Callable[[int, str], Executor]
"""From a number of threads and their name to what runs calls in them."""

Child: TypeAlias = asyncio.subprocess.Process
"""A child process with pipes to its stdin and from its stdout."""

StartChild: TypeAlias = Callable[[Sequence[str], Sequence[int]], Awaitable[Child]]
"""From arguments of this Python, and descriptors that the child inherits."""

COUNTS_SUSPEND: Final = hasattr(time, "CLOCK_BOOTTIME")
PACKAGES: Final = Path(__file__).resolve().parent.parent
"""Where the packages of this build are."""
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


async def start_child(arguments: Sequence[str], descriptors: Sequence[int]) -> Child:
    """A child with this Python and the packages of this build; what it writes to stderr is in its stdout.
    OSError if it cannot be started."""
    return await asyncio.create_subprocess_exec(
        *child_command(arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=descriptors,
        env=child_environment(),
    )


def child_command(arguments: Sequence[str]) -> list[str]:
    """Without `-P`, `-m` would import what lies in the working directory before the standard library: files
    of others who may write there, such as in /tmp, would run as this user."""
    return [sys.executable, "-P", *arguments]


def child_environment() -> dict[str, str]:
    """That of this process, with the packages of this build first."""
    paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
