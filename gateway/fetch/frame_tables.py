"""Where the batches of a damaged run begin, as the table of their WAL frame says."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from ledger.formats.wal import HEADER_BYTES, DamagedFrame, TableBatch, batches_of_run, read_frame_head
from ledger.partitions import PartitionLog
from ledger.ports import SegmentStore
from ledger.runs import Run
from ledger.types import Position

WINDOW_BYTES: Final = 256 * 1024
MAX_KNOWN: Final = 256


class FrameTables:
    """Finds the table of the frame that a run lies in, and keeps what it says of the runs asked for last.

    Frames are found from the object's first byte on: what only looks like a frame lies within one, and is
    never come to. One search at a time.
    """

    def __init__(self, segments: SegmentStore) -> None:
        self._segments = segments
        self._known: OrderedDict[tuple[str, int, int], Sequence[TableBatch] | None] = OrderedDict()
        self._searching = asyncio.Lock()

    async def of(self, locator: str, run: Run, log: PartitionLog) -> Sequence[TableBatch] | None:
        """The batches of the run, or None where no table is found that can be believed (`batches_of_run`)."""
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
        while at + HEADER_BYTES <= run.start:
            window = await self._read(locator, at, min(WINDOW_BYTES, run.start - at))
            position = 0
            while len(window) - position >= HEADER_BYTES:
                head = read_frame_head(window[position:], at + position)
                if isinstance(head, DamagedFrame):
                    return None
                frame_start = at + position
                if run.start < frame_start + head.size:
                    table = await self._read(locator, frame_start + HEADER_BYTES, head.table_bytes)
                    rows = (run.start, run.size, run.last - run.base + 1)
                    return batches_of_run(table, frame_start, log.topic_id, log.index, rows)
                position += head.size
            if not len(window):
                return None
            at += position
        return None

    async def _read(self, locator: str, start: int, size: int) -> memoryview:
        """Empty where there are no such bytes."""
        (data,) = await self._segments.read([Position(locator, start, size)])
        return memoryview(b"" if data is None else data)
