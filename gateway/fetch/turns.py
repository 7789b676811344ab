"""Turns on the event loop of one fetch that plans, copies, checks or sends much.

What a fetch costs is counted in bytes that are copied and checked; what a run or a batch costs whatever its
size counts as so many bytes. A topic whose producers send each record by itself has thousands of batches in a
megabyte.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

TURN_BYTES: Final = 4 * 1024 * 1024
"""What is done in one iteration of the event loop, about: 1 to 4 ms."""
LEAST_BYTES: Final = 32 * 1024
"""What the smallest range costs otherwise: a fetch may have thousands of them."""
BATCH_BYTES: Final = 16 * 1024
"""What it costs to take a batch: 8 to 12 us."""
RUN_BYTES: Final = 8 * 1024
"""What it costs to plan a run: 3 to 6 us."""
SENT_BYTES: Final = 4 * 1024
"""What it costs to send a batch: 1 to 2 us."""

next_iteration = partial(asyncio.sleep, 0)


class Turn:
    """Counts what is done in an iteration of the event loop, and the batches that were taken in all."""

    __slots__ = ("_bytes", "_next", "batches", "max_batches")

    def __init__(
        self, next_turn: Callable[[], Awaitable[None]] = next_iteration, max_batches: float = math.inf
    ) -> None:
        """`next_turn` returns when it is the fetch's turn again. With `max_batches` or more nothing more is
        read."""
        self._bytes = 0
        self._next = next_turn
        self.batches = 0
        self.max_batches = max_batches

    @property
    def is_spent(self) -> bool:
        return self.batches >= self.max_batches

    def is_due(self, size: int) -> bool:
        """Counts this work. True if the caller must await `next` before it does more."""
        self._bytes += size
        return self._bytes > TURN_BYTES

    def takes(self, batches: int) -> bool:
        """The same for batches that are taken."""
        self.batches += batches
        return self.is_due(batches * BATCH_BYTES)

    async def next(self) -> None:
        self._bytes = 0
        await self._next()

    async def take(self, size: int) -> None:
        """Before a range of `size` bytes: in the next iteration, if these are too many."""
        size = max(size, LEAST_BYTES)
        if self.is_due(size):
            await self.next()
            self._bytes = size
