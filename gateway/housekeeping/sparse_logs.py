"""Which files of a local log are sparse: little in them is live, so that one record which is kept for long
keeps a file of 64 MiB. Merging what is live there sets them free."""

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.coordination.shard import Shard
from ledger.keys import LOG_PREFIX, is_log
from ledger.objects.live_bytes import LiveBytesCount
from ledger.objects.state import ObjectState
from ledger.ports import SegmentStore

SPARSE_SHARE: Final = 0.2
"""Of its bytes; a file of which less is live is sparse."""
MIN_BYTES: Final = 1024 * 1024
"""Smaller files are left as they are: a process that ends early leaves such."""
MAX_FOUND: Final = 1_000
"""The others are for the next look."""
SLICE_OBJECTS: Final = 5_000
SLICE_CHUNKS: Final = 50
"""Of 256 runs: 3 ms, if every one has to be looked at."""
PAGE: Final = 1_000


class SparseLogs:
    """Of one shard. A count of live bytes is kept until the file has fewer live runs."""

    def __init__(self, shard: Shard, segments: SegmentStore) -> None:
        self._shard = shard
        self._segments = segments
        self._counted: dict[int, tuple[int, int]] = {}
        """By number: live runs, and their bytes."""

    async def find(self) -> frozenset[str]:
        """Locators of the files that are sparse, at most MAX_FOUND. Errors: StoreUnavailable."""
        files = await self._files()
        self._counted = {number: known for number, known in self._counted.items() if number in files}
        if not files:
            return frozenset()
        sizes = await self._sizes()
        files = {number: one for number, one in files.items() if sizes.get(one.locator, 0) >= MIN_BYTES}
        await self._count([number for number, stored in files.items() if self._live_bytes(stored) is None])
        found: list[str] = []
        for stored in files.values():
            live = self._live_bytes(stored)
            if live is not None and live < SPARSE_SHARE * sizes[stored.locator]:
                found.append(stored.locator)
        return frozenset(found[:MAX_FOUND])

    async def _files(self) -> Mapping[int, ObjectState]:
        """Log files with live runs, but for the newest one, which may get more. Also those that the journal
        holds: only once they are dead a snapshot is made for them, after which it does not."""
        found: dict[int, ObjectState] = {}
        newest = -1
        known = list(self._shard.state.objects.by_number.values())
        for at in range(0, len(known), SLICE_OBJECTS):
            part = [stored for stored in known[at : at + SLICE_OBJECTS] if is_log(stored.locator)]
            newest = max([newest, *[stored.number for stored in part]])
            found.update((stored.number, stored) for stored in part if stored.live_runs)
            await asyncio.sleep(0)
        found.pop(newest, None)
        return found

    async def _sizes(self) -> Mapping[str, int]:
        """Of the stored files. The ledger knows only where the last batch in a file ends, and entries may be
        behind it."""
        sizes: dict[str, int] = {}
        after = LOG_PREFIX
        while True:
            page = await self._segments.objects(after, PAGE)
            sizes.update((stored.locator, stored.size) for stored in page if is_log(stored.locator))
            if not page or not is_log(page[-1].locator):
                return sizes
            after = page[-1].locator

    async def _count(self, numbers: list[int]) -> None:
        if not numbers:
            return
        state = self._shard.state
        count = LiveBytesCount(state, [number for number in numbers if number in state.objects.by_number])
        is_over = False
        while not is_over:
            is_over = not count.step(SLICE_CHUNKS)
            await asyncio.sleep(0)
        objects = state.objects.by_number
        for number, size in count.results().items():
            self._counted[number] = (objects[number].live_runs, size)

    def _live_bytes(self, stored: ObjectState) -> int | None:
        """None if they are to be counted."""
        runs, size = self._counted.get(stored.number, (-1, 0))
        return size if runs == stored.live_runs else None
