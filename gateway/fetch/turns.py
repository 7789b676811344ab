"""Turns on the event loop of one fetch that copies and checks many bytes."""

import asyncio
from typing import Final

TURN_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a far store that are copied and checked in one iteration of the event loop, about."""
LEAST_BYTES: Final = 32 * 1024
"""What the smallest range costs otherwise: a fetch may have thousands of them."""


class Turn:
    """Counts what is done in an iteration of the event loop."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = 0

    async def take(self, size: int) -> None:
        """Before `size` bytes more: in the next iteration, if these are too many."""
        size = max(size, LEAST_BYTES)
        self._bytes += size
        if self._bytes > TURN_BYTES:
            self._bytes = size
            await asyncio.sleep(0)
