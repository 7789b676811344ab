"""A bound on the bytes that all fetches together hold, from before they read until they are sent."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Hold: TypeAlias = Callable[[Callable[[], None]], None]
"""Takes what gives bytes back, and calls it when the answer that holds them is sent or its client gone."""


def give_back_at_once(release: Callable[[], None]) -> None:
    """The `Hold` of who keeps nothing."""
    release()


class FetchBudget:
    """First come, first served. A fetch that asks for more than there is in all gets all of it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._stuck_since = 0.0

    @property
    def stuck_since(self) -> float:
        """If some wait: since when (loop time) none has got anything. Else 0. Waits that end without a
        grant make no difference: who asks again and again starves too."""
        return self._stuck_since if self._waiting else 0.0

    def acquire_now(self, size: int) -> int | None:
        """Bytes to give back later; None if they have to be waited for."""
        size = min(size, self.max_bytes)
        if self._waiting or self.held_bytes + size > self.max_bytes:
            return None
        self.held_bytes += size
        self._stuck_since = 0.0
        return size

    async def acquire(self, size: int, deadline: float) -> int:
        """The same, waiting for them. TimeoutError at the deadline (loop time)."""
        if (taken := self.acquire_now(size)) is not None:
            return taken
        size = min(size, self.max_bytes)
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()
        self._waiting.append((size, granted))
        self._stuck_since = self._stuck_since or loop.time()
        try:
            async with asyncio.timeout_at(deadline):
                await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self.release(size)
            else:
                granted.cancel()
                self._grant()
            raise
        return size

    def release(self, size: int) -> None:
        self.held_bytes -= size
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if not granted.done():
                if self.held_bytes + size > self.max_bytes:
                    return
                self.held_bytes += size
                granted.set_result(None)
                self._stuck_since = granted.get_loop().time()
            self._waiting.popleft()
