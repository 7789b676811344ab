"""How long the event loop is held at once."""

import asyncio
import gc
import time
from collections.abc import Coroutine
from typing import Any

from tests.support.quiet import slowness


async def longest_turn(work: Coroutine[Any, Any, Any]) -> float:
    """CPU seconds of a quiet machine that the event loop was held for at once, without collections of
    garbage."""
    slower, working, worst = slowness(), asyncio.ensure_future(work), 0.0
    gc.disable()
    try:
        while not working.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            worst = max(worst, time.thread_time() - began)
    finally:
        gc.enable()
    await working
    return worst / max(slower, slowness())
