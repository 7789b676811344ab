"""Sums over all partitions, counted in slices of the event loop before a page shows them."""

import asyncio
from collections.abc import Callable
from typing import Final

from ledger.state import LedgerState

SLICE: Final = 5_000
"""Partitions that are counted in one iteration of the event loop."""


class Totals:
    """As of the last `count`."""

    def __init__(self, state: Callable[[], LedgerState]) -> None:
        self._state = state
        self._counting: asyncio.Task[None] | None = None
        self.live_runs = 0
        self.live_bytes = 0

    async def count(self) -> None:
        """Count again. Callers that come while it is counted wait for that."""
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._count(), name="totals")
        await asyncio.shield(self._counting)

    async def _count(self) -> None:
        runs = size = 0
        logs = list(self._state().logs.values())
        for start in range(0, len(logs), SLICE):
            if start:
                await asyncio.sleep(0)
            for log in logs[start : start + SLICE]:
                runs += log.run_count
                size += log.size_bytes
        self.live_runs, self.live_bytes = runs, size
