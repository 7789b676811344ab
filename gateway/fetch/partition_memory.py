"""The memory for the partitions of large fetches under way, and which fetches end early when it is used up.

A fetch may wait for records for the longest time that a request may take, and holds its partitions meanwhile.
While fetches wait for memory, those that have been parked the longest end early: each returns the records
that there are, and its client fetches again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gateway.fetch.budget import FetchBudget, Share
from gateway.fetch.purgatory import ParkedFetch
from gateway.scheduling.slices import Owner

SHED_AFTER_S: Final = 2.0
"""A fetch is parked for this long before it may end early, so that clients do not fetch without a pause."""
CHECK_EVERY_S: Final = 0.1
"""The pause between two checks, while a fetch waits for memory."""


class PartitionMemory:
    """Grants bytes as `FetchBudget` does, fairly by address and connection."""

    def __init__(self, max_bytes: int) -> None:
        self._budget = FetchBudget(max_bytes)
        self._parked: dict[ParkedFetch, tuple[float, Share]] = {}
        """Since when each is parked (loop time), and its share; the longest parked first."""
        self._ending: list[Share] = []
        """Of fetches that were ended early and may not have released it yet."""
        self._timer: asyncio.Handle | None = None

    @property
    def held_bytes(self) -> int:
        return self._budget.held_bytes

    async def acquire(self, size: int, deadline: float, owner: Owner) -> Share:
        """Bytes to release later. TimeoutError at the deadline (loop time)."""
        share = self._budget.acquire_now(size, owner)
        if share is not None:
            return share
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._check)
        return await self._budget.acquire(size, deadline, owner)

    @contextmanager
    def parked(self, fetch: ParkedFetch, share: Share) -> Iterator[None]:
        """While a fetch that holds this share waits for records."""
        self._parked[fetch] = asyncio.get_running_loop().time(), share
        try:
            yield
        finally:
            del self._parked[fetch]

    def close(self) -> None:
        """No fetch ends early any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if not self._budget.waiting_since:
            return
        loop = asyncio.get_running_loop()
        self._ending = [share for share in self._ending if share.size]
        missing = self._budget.missing_bytes - sum([share.size for share in self._ending])
        for fetch, (since, share) in self._parked.items():
            if missing <= 0 or since > loop.time() - SHED_AFTER_S:
                break
            if not fetch.woken.done():
                fetch.wake(False)
                self._ending.append(share)
                missing -= share.size
        self._timer = loop.call_later(CHECK_EVERY_S, self._check)
