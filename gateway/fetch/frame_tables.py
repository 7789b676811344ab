"""Where the batches of a damaged run begin, as the table of their WAL frame says."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.local_log import (
    FRAME_HEAD_BYTES,
    LogHeader,
    Torn,
    read_frame_extent,
    read_header,
)
from ledger.formats.local_log import HEADER_BYTES as LOG_HEADER_BYTES
from ledger.formats.wal import (
    MAX_HEADER_BYTES,
    DamagedFrame,
    TableBatch,
    batches_of_run,
    is_table_of,
    read_frame_head,
)
from ledger.keys import is_log
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.ports import SegmentStore
from ledger.types import Position

WINDOW_BYTES: Final = 256 * 1024
MAX_KNOWN: Final = 256


class FrameTables:
    """Finds the table of the frame that a run is in, and remembers the batches of the runs that were last
    looked up.

    Frames are found from the object's first one on, so that bytes within a frame that look like another are
    never taken for one. In a file of a local log they are inside of its frames. One search at a time.
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
        try:
            frame_start = await self._frame_with(locator, run.start) if run.dense else None
        except (StoreDamaged, StoreTooNew):
            return None
        if frame_start is None:
            return None
        head = read_frame_head(await self._read(locator, frame_start, MAX_HEADER_BYTES), frame_start)
        if isinstance(head, DamagedFrame):
            return None
        table = await self._read(locator, frame_start + head.header_bytes, head.table_bytes)
        if not is_table_of(head, table):
            return None
        rows = (run.start, run.size, run.last - run.base + 1)
        return batches_of_run(table, frame_start, log.topic_id, log.index, rows)

    async def _frame_with(self, locator: str, byte: int) -> int | None:
        """Where the WAL frame begins that has this byte; None if the frames before it cannot be read."""
        frames: _Frames | None = _WAL_FRAMES
        if is_log(locator):
            header = read_header(await self._read(locator, 0, LOG_HEADER_BYTES), locator)
            frames = None if header is None else _Frames(LOG_HEADER_BYTES, *_frames_of_log(header))
        if frames is None:
            return None
        at = frames.first
        while at + frames.head_bytes <= byte:
            window = await self._read(locator, at, min(WINDOW_BYTES, byte - at))
            position = 0
            while len(window) - position >= frames.head_bytes:
                extent = frames.extent(window[position:], at + position)
                if extent is None:
                    return None
                if byte < extent.end:
                    return extent.wal_start
                position = extent.end - at
            if not len(window):
                return None
            at += position
            # What is in memory is read without a pause.
            await asyncio.sleep(0)
        return None

    async def _read(self, locator: str, start: int, size: int) -> memoryview:
        """Empty if the object has no such bytes."""
        (data,) = await self._segments.read([Position(locator, start, size)])
        return memoryview(b"" if data is None else data)


class _Extent(NamedTuple):
    wal_start: int
    end: int


class _Frames(NamedTuple):
    """How the frames of an object follow each other: the first begins at `first`."""

    first: int
    head_bytes: int
    extent: Callable[[memoryview, int], _Extent | None]
    """Of the frame at a position, from its first `head_bytes`; None if it is none."""


def _wal_extent(head: memoryview, at: int) -> _Extent | None:
    found = read_frame_head(head, at)
    return None if isinstance(found, DamagedFrame) else _Extent(at, at + found.size)


def _frames_of_log(header: LogHeader) -> tuple[int, Callable[[memoryview, int], _Extent | None]]:
    def extent(head: memoryview, at: int) -> _Extent | None:
        found = read_frame_extent(header, head[:FRAME_HEAD_BYTES], at)
        return None if isinstance(found, Torn) else _Extent(found.batches_at, found.end)

    return FRAME_HEAD_BYTES, extent


_WAL_FRAMES: Final = _Frames(0, MAX_HEADER_BYTES, _wal_extent)
