"""Figures of all groups, counted in slices of the event loop before a page shows them."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from gateway.groups.coordinator import GroupCoordinator

SLICE: Final = 5_000
"""Groups that are counted in one iteration of the event loop."""


class GroupTotals:
    """As of the last `count`."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups
        self._counting: asyncio.Task[None] | None = None
        self.groups = 0
        """With members, with some once, or with offsets."""
        self.members = 0
        self.by_state: Mapping[str, int] = {}
        """Groups that have members, or had lately."""

    async def count(self) -> None:
        """Count again. Callers that come while they are counted wait for that."""
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._count(), name="group totals")
        await asyncio.shield(self._counting)

    async def _count(self) -> None:
        groups = members = 0
        for _ in self._groups.ids():
            groups += 1
            if groups % SLICE == 0:
                await asyncio.sleep(0)
        by_state = Counter[str]()
        for at, (state, size) in enumerate(self._groups.figures(), 1):
            by_state[state] += 1
            members += size
            if at % SLICE == 0:
                await asyncio.sleep(0)
        self.groups, self.members, self.by_state = groups, members, by_state
