"""Work in steps of the event loop."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

Made = TypeVar("Made")


async def in_steps(steps: Generator[int, None, Made]) -> Made:
    """What a generator of steps returns in the end. Other tasks run in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: Made = end.value
            return made
        await asyncio.sleep(0)
