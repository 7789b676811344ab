"""Where the sound batches of a damaged run of a segment are, with the help of its `.index`."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.fetch.object_reads import MAX_OBJECT_BYTES
from gateway.fetch.sound_batches import SoundBatch, SoundBatches
from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.segment import INDEX_HEAD_BYTES, IndexEntry, index_bytes, read_index
from ledger.keys import index_locator
from ledger.partitions.runs import Run
from ledger.ports import SegmentStore
from ledger.types import Buffer, Position

MAX_KNOWN: Final = 256
MAX_INDEX_BYTES: Final = 16 * 1024 * 1024
"""Of a segment of 2 GiB, with an entry for each KiB of records, 24 MiB: longer ones are not read."""


class SegmentIndexes:
    """Searches damaged runs, and remembers what was found in those that were searched last. One search at a
    time."""

    def __init__(self, segments: SegmentStore) -> None:
        self._segments = segments
        self._known: OrderedDict[tuple[str, int], Sequence[SoundBatch]] = OrderedDict()
        self._searching = asyncio.Lock()

    async def of(self, locator: str, run: Run) -> Sequence[SoundBatch]:
        """The sound batches of the run, ascending. Raises StoreUnavailable."""
        key = (locator, run.start)
        async with self._searching:
            if key not in self._known:
                self._known[key] = await self._find(locator, run)
                if len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
            return self._known[key]

    async def _find(self, locator: str, run: Run) -> Sequence[SoundBatch]:
        if run.size > MAX_OBJECT_BYTES:
            return []  # it is one batch
        data = await self._read(locator, run.start, run.size)
        if data is None:
            return []
        search = SoundBatches(run, memoryview(data), await self._entries(locator))
        for _ in search.steps():
            await asyncio.sleep(0)
        return search.found

    async def _entries(self, locator: str) -> Sequence[IndexEntry]:
        key = index_locator(locator)
        head = await self._read(key, 0, INDEX_HEAD_BYTES)
        try:
            size = index_bytes(head or b"", key)
            if size > MAX_INDEX_BYTES:
                return []
            return read_index(await self._read(key, 0, size) or b"", key).entries
        except (StoreDamaged, StoreTooNew):
            return []

    async def _read(self, locator: str, start: int, size: int) -> Buffer | None:
        (data,) = await self._segments.read([Position(locator, start, size)])
        return data
