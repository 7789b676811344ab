"""Where the batches of a damaged run begin, as the table of their WAL frame says."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ledger.formats.wal import (
    MAX_HEADER_BYTES,
    DamagedFrame,
    TableBatch,
    batches_of_run,
    is_table_of,
    read_frame_head,
)
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.ports import SegmentStore
from ledger.types import Position

WINDOW_BYTES: Final = 256 * 1024
MAX_KNOWN: Final = 256


class FrameTables:
    """Finds the table of the frame that a run is in, and remembers the batches of the runs that were last
    looked up.

    Frames are found from the object's first byte on, so that bytes within a frame that look like another are
    never taken for one. One search at a time.
    """

    def __init__(self, segments: SegmentStore) -> None:
        self._segments = segments
        self._known: OrderedDict[tuple[str, int, int], Sequence[TableBatch] | None] = OrderedDict()
        self._searching = asyncio.Lock()

    async def of(self, locator: str, run: Run, log: PartitionLog) -> Sequence[TableBatch] | None:
        """The batches of the run, or None if there is no valid table (`batches_of_run`)."""
        key = (locator, run.start, run.size)
        async with self._searching:
            if key not in self._known:
                self._known[key] = await self._find(locator, run, log)
                if len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
            return self._known[key]

    async def _find(self, locator: str, run: Run, log: PartitionLog) -> Sequence[TableBatch] | None:
        if not run.dense:
            return None
        at = 0
        while at + MAX_HEADER_BYTES <= run.start:
            window = await self._read(locator, at, min(WINDOW_BYTES, run.start - at))
            position = 0
            while len(window) - position >= MAX_HEADER_BYTES:
                head = read_frame_head(window[position:], at + position)
                if isinstance(head, DamagedFrame):
                    return None
                frame_start = at + position
                if run.start < frame_start + head.size:
                    table = await self._read(locator, frame_start + head.header_bytes, head.table_bytes)
                    if not is_table_of(head, table):
                        return None
                    rows = (run.start, run.size, run.last - run.base + 1)
                    return batches_of_run(table, frame_start, log.topic_id, log.index, rows)
                position += head.size
            if not len(window):
                return None
            at += position
        return None

    async def _read(self, locator: str, start: int, size: int) -> memoryview:
        """Empty if the object has no such bytes."""
        (data,) = await self._segments.read([Position(locator, start, size)])
        return memoryview(b"" if data is None else data)
