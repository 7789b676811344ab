"""Looks every second, while clients are connected, whether another gateway has taken the shard over.

What is read without a proof (a fetch, metadata) may be as old as the last look. Whatever is appended or
proved meanwhile is a look too, and an idle gateway sends none.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.coordination.shard import Shard
from ledger.errors import StoreUnavailable

LOOK_S: Final = 1.0
DEADLINE_S: Final = 10.0


class OwnershipWatch:
    def __init__(self, shard: Shard, has_clients: Callable[[], bool]) -> None:
        self._shard = shard
        self._has_clients = has_clients

    async def run(self) -> None:
        """Until cancelled. Ends at once where this process alone can write the journal."""
        if self._shard.is_exclusive:
            return
        loop = asyncio.get_running_loop()
        while True:
            looked_at = self._shard.owner.proved_at
            due_in = looked_at + LOOK_S - loop.time()
            if due_in <= 0.0 and self._has_clients() and self._shard.broken is None:
                began = loop.time()
                # A store that is out of reach is reported by whatever needs it.
                with suppress(StoreUnavailable, TimeoutError):
                    await self._shard.owner.prove(began + DEADLINE_S)
                due_in = began + LOOK_S - loop.time()
            # Also while no client is connected, so that the first one is noticed.
            await asyncio.sleep(min(max(due_in, 0.0), LOOK_S) or LOOK_S)
