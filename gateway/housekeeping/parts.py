"""Long sequences in parts, between which other tasks run."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


async def in_parts(items: Sequence[Item], size: int) -> AsyncIterator[Sequence[Item]]:
    """Other tasks run after every part of `size` items, not before the first."""
    for at in range(0, len(items), size):
        if at:
            await asyncio.sleep(0)
        yield items[at : at + size]
