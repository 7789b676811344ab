"""Reads of a store whose reads nothing else keeps: whole objects once for all who want them, or ranges.

A missing object of at most MAX_OBJECT_BYTES is read whole, by one call however many fetches wait for it. The
call belongs to no fetch: one that is cancelled, or whose time is over, leaves it to the others. Its memory is
reserved in the cache before it begins. Where there is no room only the wanted ranges are read. Each object is
waited for by itself, so that one that hangs delays no other. The store bounds how many it reads at once.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.fetch.cache import MAX_WASTE, RunCache
from gateway.telemetry.object_reads import ObjectReadCounts
from ledger.errors import StoreError, StoreUnavailable
from ledger.ports import SegmentStore
from ledger.types import Buffer, Position

MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024
MAX_UNDER_WAY: Final = 1024
"""Whole objects that are being read, or wait for their turn at the store."""
MAX_BEFORE_AHEAD: Final = 64
"""With more under way nothing is read ahead: half of what a store reads at once is for fetches that wait."""
AHEAD_FRACTION: Final = 4
"""Of the cache, what may be objects that were read ahead and that no fetch has wanted yet."""
AHEAD_S: Final = 5.0
"""An object that was read ahead counts as such for this long: its reader may have gone."""
MAX_DISTRUSTED: Final = 1024


class MissingRange:
    """Bytes of an object that are not in memory as checked batches. Once filled it has `data`, which are not
    checked; or neither, if the store does not have them; or a `failure`."""

    __slots__ = ("data", "failure", "object_bytes", "position", "whole_bytes")

    def __init__(self, position: Position, object_bytes: int) -> None:
        self.position = position
        self.object_bytes = object_bytes
        """Of the whole object; 0 if that is not known."""
        self.data: Buffer | None = None
        self.whole_bytes = 0
        """Of the object that the data are a view of; 0 if they were read by themselves."""
        self.failure: StoreError | None = None

    def cut(self, whole: memoryview) -> None:
        """Take the data out of the whole object."""
        start, size = self.position.start, self.position.size
        view = whole[start : start + size]
        if len(view) == size:
            self.data, self.whole_bytes = view, len(whole)

    def detached(self) -> Buffer | None:
        """The data, as a response may keep them: a view keeps the whole object in memory, so small data are
        copied."""
        is_small = self.data is not None and self.whole_bytes > MAX_WASTE * self.position.size
        return bytes(self.data) if self.data is not None and is_small else self.data


class ObjectReads:
    """One for all fetches. `close` ends what is under way."""

    def __init__(self, segments: SegmentStore, cache: RunCache) -> None:
        self._segments = segments
        self._cache = cache
        self.counts = ObjectReadCounts()
        self._under_way: dict[str, asyncio.Task[memoryview | None]] = {}
        self._ahead: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Objects that were begun ahead and that no fetch has wanted yet: size, and when (loop time)."""
        self.ahead_bytes = 0
        self._distrusted: OrderedDict[str, None] = OrderedDict()
        """Objects that had damage in them: these are read in ranges, each time again."""
        self._is_closed = False

    @property
    def under_way(self) -> int:
        """Whole objects that are being read."""
        return len(self._under_way)

    async def fill(self, missing: Sequence[MissingRange], deadline: float) -> None:
        """Read all of these. What does not come until `deadline` (loop time) has failed: StoreUnavailable."""
        of_object: dict[str, list[MissingRange]] = {}
        for part in missing:
            of_object.setdefault(part.position.locator, []).append(part)
        tasks = {}
        for locator, parts in of_object.items():
            if not self._cut_cached(locator, parts):
                tasks[asyncio.create_task(self._fill_object(locator, parts))] = parts
        if not tasks:
            return
        try:
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            ended, late = await asyncio.wait(tasks, timeout=None if left_s == math.inf else left_s)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in late:
            for part in tasks[task]:
                part.failure = StoreUnavailable(f"{part.position.locator} was not read in time")
        for task in ended:
            task.result()

    def read_ahead(self, locator: str, size: int) -> bool:
        """Begin to read an object that a fetch will probably want. False if there is no room now."""
        if self._is_known(locator, size):
            return True
        now = asyncio.get_running_loop().time()
        while self._ahead and next(iter(self._ahead.values()))[1] < now - AHEAD_S:
            self._wanted(next(iter(self._ahead)))
        most = self._cache.max_bytes // AHEAD_FRACTION
        if self.ahead_bytes + size > most or len(self._under_way) >= MAX_BEFORE_AHEAD:
            return False
        if not self._cache.reserve(size, is_ahead=True):
            return False
        self._begin(locator, size)
        self._ahead[locator] = size, now
        self.ahead_bytes += size
        self.counts.ahead += 1
        return True

    def distrust(self, locator: str) -> None:
        """A batch in it is damaged. That may have happened on the way, so it is not kept."""
        self._cache.discard_object(locator)
        self._distrusted[locator] = None
        if len(self._distrusted) > MAX_DISTRUSTED:
            self._distrusted.popitem(last=False)

    async def close(self) -> None:
        """Fetches that still wait get StoreUnavailable."""
        self._is_closed = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_known(self, locator: str, size: int) -> bool:
        """Nothing is to be done for this object."""
        return (
            locator in self._under_way
            or locator in self._distrusted
            or not 0 < size <= MAX_OBJECT_BYTES
            or self._is_closed
        )

    def _cut_cached(self, locator: str, parts: Sequence[MissingRange]) -> bool:
        whole = self._cache.object(locator)
        if whole is None:
            return False
        self._wanted(locator)
        self.counts.hits += 1
        for part in parts:
            part.cut(whole)
        return True

    async def _fill_object(self, locator: str, parts: Sequence[MissingRange]) -> None:
        whole = self._whole(locator, parts[0].object_bytes)
        if whole is not None:
            await asyncio.wait([whole])
            if whole.cancelled():
                failure: BaseException | None = StoreUnavailable("the gateway is closing")
            else:
                failure = whole.exception()
            if isinstance(failure, StoreError):
                for part in parts:
                    part.failure = failure
                return
            if failure is not None:
                raise failure
            if (data := whole.result()) is not None:
                for part in parts:
                    part.cut(data)
                return
        # Some of the ranges may be there, even if the object is not as long as the ledger says.
        self.counts.ranges += 1
        await self._fill_ranges(parts)

    async def _fill_ranges(self, parts: Sequence[MissingRange]) -> None:
        try:
            found = await self._segments.read([part.position for part in parts])
        except StoreError as error:
            for part in parts:
                part.failure = error
            return
        for part, data in zip(parts, found, strict=True):
            part.data = data
            self.counts.bytes_read += len(data or b"")

    def _whole(self, locator: str, size: int) -> asyncio.Task[memoryview | None] | None:
        """The call that reads it, perhaps for others already. None: it is not to be read whole now."""
        self._wanted(locator)
        task = self._under_way.get(locator)
        if task is not None:
            self.counts.hits += 1
            return task
        if (
            self._is_known(locator, size)
            or len(self._under_way) >= MAX_UNDER_WAY
            or not self._cache.reserve(size)
        ):
            return None
        self.counts.misses += 1
        return self._begin(locator, size)

    def _begin(self, locator: str, size: int) -> asyncio.Task[memoryview | None]:
        task = self._under_way[locator] = asyncio.create_task(self._read(locator, size))

        def done(task: asyncio.Task[memoryview | None]) -> None:
            del self._under_way[locator]
            self._cache.release(size)
            if not task.cancelled() and task.exception() is None and (data := task.result()) is not None:
                self.counts.bytes_read += len(data)
                if locator not in self._distrusted:
                    self._cache.put_object(locator, data)

        task.add_done_callback(done)
        return task

    async def _read(self, locator: str, size: int) -> memoryview | None:
        (data,) = await self._segments.read([Position(locator, 0, size)])
        return None if data is None else memoryview(data)

    def _wanted(self, locator: str) -> None:
        """It does not count as read ahead any more."""
        entry = self._ahead.pop(locator, None)
        if entry is not None:
            self.ahead_bytes -= entry[0]
