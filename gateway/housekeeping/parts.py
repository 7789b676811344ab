"""What may be long in parts, between which other tasks run."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


async def in_parts(items: Iterable[Item], size: int) -> AsyncIterator[Sequence[Item]]:
    """Other tasks run after every part of `size` items, not before the first."""
    left = iter(items)
    part = list(islice(left, size))
    while part:
        yield part
        part = list(islice(left, size))
        if part:
            await asyncio.sleep(0)
