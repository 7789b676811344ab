"""A bound on the bytes that all fetches together hold while they read."""

import asyncio
from collections import deque


class FetchBudget:
    """First come, first served. A fetch that asks for more than there is in all gets all of it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, size: int, deadline: float) -> int:
        """Bytes to give back later. TimeoutError at the deadline (loop time)."""
        size = min(size, self.max_bytes)
        if not self._waiting and self.held_bytes + size <= self.max_bytes:
            self.held_bytes += size
            return size
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
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
            self._waiting.popleft()
