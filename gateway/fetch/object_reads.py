"""Reads of a store whose reads nothing else keeps: whole objects once for all who want them, or ranges.

A missing object of at most MAX_OBJECT_BYTES is read whole, by one call however many fetches wait for it. Of a
segment each run is read as if it were an object, since a segment is as large as a job makes it. Where little
of the last objects was wanted, by few fetches, only the wanted ranges are read (`sharing.py`). The call
belongs to no fetch: one that is cancelled, or whose time is over, leaves it to the others. Its memory is
reserved in the cache before it begins. Where there is no room only the wanted ranges are read. Each whole
object is waited for by itself, so that one that hangs delays no other. The store bounds how many it reads at
once, and a fetch how many ranges it waits for.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.fetch.cache import MAX_WASTE, RunCache
from gateway.fetch.sharing import Sharing
from gateway.fetch.turns import Turn
from gateway.telemetry.object_reads import ObjectReadCounts
from ledger.errors import StoreError, StoreUnavailable
from ledger.keys import is_segment
from ledger.ports import SegmentStore
from ledger.types import Buffer, Position

MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024
MAX_UNDER_WAY: Final = 1024
"""Whole objects that are being read, or wait for their turn at the store."""
RANGES_AT_ONCE: Final = 128
"""Objects of which one fetch reads ranges: as many as a store reads at once. A fetch may want any number."""
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

    __slots__ = ("data", "failure", "is_of_whole", "object_bytes", "object_start", "position")

    def __init__(self, position: Position, object_bytes: int, object_start: int = 0) -> None:
        """`object_bytes` from `object_start` on are what may be read whole: the object, or a run of a
        segment. 0: its size is not known."""
        self.position = position
        self.object_bytes = object_bytes
        self.object_start = object_start
        self.data: Buffer | None = None
        self.is_of_whole = False
        """The data were taken out of the whole object; else they were read by themselves."""
        self.failure: StoreError | None = None

    @property
    def name(self) -> str:
        """Of what may be read whole."""
        return name_of(self.position.locator, self.object_start)

    def cut(self, whole: memoryview) -> None:
        """Take the data out of the whole object. A view keeps all of it in memory, also while the fetch waits
        for other objects, and nothing counts that: so small data are copied at once."""
        start, size = self.position.start - self.object_start, self.position.size
        view = whole[start : start + size]
        if len(view) == size:
            self.data = bytes(view) if len(whole) > MAX_WASTE * size else view
            self.is_of_whole = True


def name_of(locator: str, start: int) -> str:
    """Of an object, or of a run of a segment, which does not begin with the object."""
    return f"{locator}@{start}" if start else locator


@dataclass(slots=True, eq=False)
class _Unread:
    """What a fetch wants of an object that is not in memory."""

    parts: Sequence[MissingRange]
    whole: "asyncio.Task[memoryview | None] | None"
    """The call that reads it, perhaps for others. None: its ranges are read."""


class ObjectReads:
    """One for all fetches. `close` ends what is under way."""

    def __init__(self, segments: SegmentStore, cache: RunCache) -> None:
        self._segments = segments
        self._cache = cache
        self.counts = ObjectReadCounts()
        self._sharing = Sharing(cache.max_bytes)
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
            of_object.setdefault(part.name, []).append(part)
        turn = Turn()
        unread = []
        for name, parts in of_object.items():
            await turn.take(sum([part.position.size for part in parts]))
            in_ranges = self._is_better_in_ranges(name, parts)
            if not self._cut_cached(name, parts):
                unread.append(_Unread(parts, self._whole(name, parts[0], in_ranges)))
        if unread:
            await self._wait_for(unread, deadline, turn)

    async def _wait_for(self, unread: Sequence[_Unread], deadline: float, turn: Turn) -> None:
        unfinished = dict.fromkeys(unread)
        ranges = iter([one for one in unread if one.whole is None])

        async def read_ranges() -> None:
            for one in ranges:
                await self._fill_ranges(one.parts)
                del unfinished[one]

        async def wait_for(one: _Unread, whole: "asyncio.Task[memoryview | None]") -> None:
            await self._fill_by(whole, one.parts)
            del unfinished[one]

        wholes = [wait_for(one, one.whole) for one in unread if one.whole is not None]
        works = [read_ranges() for _ in range(min(RANGES_AT_ONCE, len(unread) - len(wholes)))]
        tasks = [asyncio.create_task(work) for work in (*wholes, *works)]
        try:
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            ended, late = await asyncio.wait(tasks, timeout=None if left_s == math.inf else left_s)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for one in unfinished:
            for part in one.parts:
                part.failure = StoreUnavailable(f"{part.position.locator} was not read in time")
        for task in ended:
            task.result()

    def read_ahead(self, locator: str, size: int, start: int = 0) -> bool:
        """Begin to read an object, or a run of a segment, that a fetch will probably want. False if there is
        no room now."""
        name = name_of(locator, start)
        if self._is_known(name, size) or (not is_segment(locator) and self._sharing.is_wasted_ahead(size)):
            return True
        now = asyncio.get_running_loop().time()
        while self._ahead and next(iter(self._ahead.values()))[1] < now - AHEAD_S:
            self._wanted(next(iter(self._ahead)))
        most = self._cache.max_bytes // AHEAD_FRACTION
        if self.ahead_bytes + size > most or len(self._under_way) >= MAX_BEFORE_AHEAD:
            return False
        if not self._cache.reserve(size, is_ahead=True):
            return False
        self._begin(name, Position(locator, start, size))
        self._ahead[name] = size, now
        self.ahead_bytes += size
        self.counts.ahead += 1
        return True

    def distrust(self, name: str) -> None:
        """A batch in it is damaged. That may have happened on the way, so it is not kept."""
        self._cache.discard_object(name)
        self._distrusted[name] = None
        if len(self._distrusted) > MAX_DISTRUSTED:
            self._distrusted.popitem(last=False)

    async def close(self) -> None:
        """Fetches that still wait get StoreUnavailable."""
        self._is_closed = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_known(self, name: str, size: int) -> bool:
        """Nothing is to be done for this object."""
        return (
            name in self._under_way
            or name in self._distrusted
            or not 0 < size <= MAX_OBJECT_BYTES
            or self._is_closed
        )

    def _is_better_in_ranges(self, name: str, parts: Sequence[MissingRange]) -> bool:
        """A run of a segment is of one partition, and wanted as a whole by those who want any of it."""
        size = parts[0].object_bytes
        if not 0 < size <= MAX_OBJECT_BYTES or is_segment(parts[0].position.locator):
            return False
        return self._sharing.want(name, size, [part.position for part in parts])

    def _cut_cached(self, name: str, parts: Sequence[MissingRange]) -> bool:
        whole = self._cache.object(name)
        if whole is None:
            return False
        self._wanted(name)
        self.counts.hits += 1
        for part in parts:
            part.cut(whole)
        return True

    async def _fill_by(self, whole: "asyncio.Task[memoryview | None]", parts: Sequence[MissingRange]) -> None:
        await asyncio.wait([whole])
        if whole.cancelled():
            failure: BaseException | None = StoreUnavailable("the gateway is closing")
        else:
            failure = whole.exception()
        if isinstance(failure, StoreError):
            for part in parts:
                part.failure = failure
        elif failure is not None:
            raise failure
        elif (data := whole.result()) is not None:
            for part in parts:
                part.cut(data)
        else:
            # Some of the ranges may be there, even if the object is not as long as the ledger says.
            await self._fill_ranges(parts)

    async def _fill_ranges(self, parts: Sequence[MissingRange]) -> None:
        self.counts.ranges += 1
        try:
            found = await self._segments.read([part.position for part in parts])
        except StoreError as error:
            for part in parts:
                part.failure = error
            return
        for part, data in zip(parts, found, strict=True):
            part.data = data
            self.counts.bytes_read += len(data or b"")

    def _whole(
        self, name: str, part: MissingRange, in_ranges: bool
    ) -> asyncio.Task[memoryview | None] | None:
        """The call that reads it, perhaps for others already. None: it is not to be read whole now."""
        self._wanted(name)
        task = self._under_way.get(name)
        if task is not None:
            self.counts.hits += 1
            return task
        size = part.object_bytes
        if (
            in_ranges
            or self._is_known(name, size)
            or len(self._under_way) >= MAX_UNDER_WAY
            or not self._cache.reserve(size)
        ):
            return None
        self.counts.misses += 1
        return self._begin(name, Position(part.position.locator, part.object_start, size))

    def _begin(self, name: str, where: Position) -> asyncio.Task[memoryview | None]:
        task = self._under_way[name] = asyncio.create_task(self._read(where))

        def done(task: asyncio.Task[memoryview | None]) -> None:
            del self._under_way[name]
            self._cache.release(where.size)
            if not task.cancelled() and task.exception() is None and (data := task.result()) is not None:
                self.counts.bytes_read += len(data)
                if name not in self._distrusted:
                    self._cache.put_object(name, data)

        task.add_done_callback(done)
        return task

    async def _read(self, where: Position) -> memoryview | None:
        (data,) = await self._segments.read([where])
        return None if data is None else memoryview(data)

    def _wanted(self, name: str) -> None:
        """It does not count as read ahead any more."""
        entry = self._ahead.pop(name, None)
        if entry is not None:
            self.ahead_bytes -= entry[0]
