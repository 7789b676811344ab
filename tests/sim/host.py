"""A host of a seed: its clocks, its random values, its threads and timers, all on the virtual time of the
loop."""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor

from gateway.network.links import Links
from gateway.world import StoreOpener, World

BEGUN_MS = 1_700_000_000_000
BOOTED_MS = 1_000_000
READING_S = 0.00002
"""What each reading of a precise clock adds, so that long work has an end."""


class LoopTimer:
    """As `TimerFd`, by the timers of the loop: virtual time does not round them."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._seconds = seconds
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        self.disarm()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._callback)

    def disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        self.disarm()


class _NoThreads(Executor):
    """The virtual loop runs itself what it would hand over."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        return None


class SimulatedHost:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"host {seed}")
        self._readings = 0

    def world(self, stores: StoreOpener, links: Links) -> World:
        return World(
            stores,
            links,
            wall_ms=lambda: BEGUN_MS + now_ms(),
            boot_ms=lambda: BOOTED_MS + now_ms(),
            precise_s=self._precise_s,
            cpu_s=self._precise_s,
            random_bytes=self._random.randbytes,
            host_name=lambda: "simulated",
            thread_pool=lambda _count, _name: _NoThreads(),
            timer=LoopTimer,
            start_child=None,
        )

    def _precise_s(self) -> float:
        self._readings += 1
        return asyncio.get_running_loop().time() + self._readings * READING_S


def now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
