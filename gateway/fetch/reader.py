"""Stored bytes by position: from the cache, and the rest from the segment store: in one call where reads are
kept by the system, else as `ObjectReads` does."""

import asyncio
import math
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.fetch.cache import RunCache
from gateway.fetch.frame_tables import FrameTables
from gateway.fetch.object_reads import MissingRange, ObjectReads
from gateway.fetch.read_ahead import ReadAhead
from gateway.fetch.segment_indexes import SegmentIndexes
from gateway.fetch.stream import BatchStream, ByteRange, Damaged, StoredBatch
from gateway.fetch.turns import RUN_BYTES, Turn
from gateway.telemetry.logs import QuietLog
from ledger.errors import StoreError, StoreUnavailable
from ledger.partitions.markers import is_marker, marker_bytes
from ledger.partitions.runs import Run
from ledger.ports import SegmentStore
from ledger.types import Buffer, Position

ALARM_QUIET_S: Final = 60.0
"""Every fetch of a partition meets the same damage again, and clients try again at once."""


class MissingObject(Exception):
    """An object, or a range of one, is in the ledger but not in the store: the plan is stale, or data is
    lost."""


class ReadRequest(NamedTuple):
    """A stream, and about how many bytes to read for it."""

    stream: BatchStream
    size: int


class ObjectPlace(Protocol):
    """What the ledger knows of an object."""

    @property
    def locator(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes; 0 if that is not known."""
        ...


class _NoPlace(NamedTuple):
    locator: str = ""
    size: int = 0


_OF_MARKERS: Final = _NoPlace()
"""Markers are in no object."""


_Placed: TypeAlias = tuple[ObjectPlace, ByteRange]


class RunReader:
    """Fills streams. `find_object` has the object of a number of the ledger (KeyError when it is deleted);
    `alarm` counts events that must not happen."""

    def __init__(
        self,
        segments: SegmentStore,
        cache: RunCache,
        find_object: Callable[[int], ObjectPlace],
        alarm: Callable[[str], None],
    ) -> None:
        self._segments = segments
        # A consumer that catches up reads everything once. A buffer that is freed at once is still in the
        # processor's caches when the next read fills it; one that passes through a cache of many megabytes
        # is not.
        keeps_reads = segments.capabilities.keeps_reads
        self.objects = None if keeps_reads else ObjectReads(segments, cache)
        self._ahead = None if self.objects is None else ReadAhead(self.objects, cache, find_object)
        self._find_object = find_object
        self._alarm = alarm
        self._tables = FrameTables(segments)
        self._indexes = SegmentIndexes(segments)
        self._log = QuietLog(ALARM_QUIET_S, keyed_by=("topic", "partition"))
        self.cache = cache
        self.hit_bytes = self.missed_bytes = 0
        """Bytes that were wanted of the cache's entries, and those of them that it did not have."""

    async def read(
        self,
        reads: Sequence[ReadRequest],
        max_bytes: int,
        deadline: float = math.inf,
        turn: Turn | None = None,
    ) -> list[Exception | None]:
        """Read the next ranges of every stream; streams beyond `max_bytes` in all, but never the first, are
        left for the next call. For each stream None, MissingObject, Damaged, or StoreUnavailable, also if a
        far store has not answered until `deadline` (loop time). `turn` counts what is done.

        Raises StoreUnavailable if the store failed for all of them.
        """
        turn = turn or Turn()
        ranges, failures = await self._plan(reads, max_bytes, turn)
        pieces = await self._cached(ranges, turn)
        missing = [piece.missing for piece in pieces if piece.missing is not None]
        if missing and self.objects is not None:
            await self.objects.fill(missing, deadline)
        elif missing:
            stored = await self._segments.read([part.position for part in missing])
            for part, data in zip(missing, stored, strict=True):
                part.data = data
        at = 0
        for index, (read, group) in enumerate(zip(reads, ranges, strict=True)):
            if failures[index] is None and group:
                failure = await self._fill(read.stream, group, pieces[at : at + len(group)], turn)
                if isinstance(failure, Damaged):
                    failure = await self._after_damage(read.stream, failure, deadline)
                failures[index] = failure
            at += len(group)
        return failures

    def take_written(self, stream: BatchStream, wanted: int) -> bool:
        """Read about `wanted` bytes of a stream at once, if they are all of batches that were written here
        lately. False: nothing was read."""
        run = stream.runs[-1]
        if is_marker(run):
            return False
        try:
            locator = self._find_object(run.object_number).locator
        except KeyError:
            return False
        before = len(stream.batches)
        if not stream.take_written(partial(self.cache.written, locator), wanted):
            return False
        self.hit_bytes += sum([len(batch.data) for batch in stream.batches[before:]])
        return True

    def served(self, stream: BatchStream, last: StoredBatch) -> None:
        """A client gets the batches of this stream up to this one."""
        stream.note_end(last)
        if self._ahead is not None and stream.log is not None:
            self._ahead.served(stream.log, stream.offset, last.last_offset + 1)

    async def close(self) -> None:
        """End the reads that belong to no fetch."""
        if self.objects is not None:
            await self.objects.close()

    async def _plan(
        self, reads: Sequence[ReadRequest], max_bytes: int, turn: Turn
    ) -> tuple[list[list[_Placed]], list[Exception | None]]:
        """The ranges to read for each stream, or why there are none."""
        ranges: list[list[_Placed]] = []
        failures: list[Exception | None] = []
        left = max_bytes
        for read in reads:
            placed: list[_Placed] = []
            failure: Exception | None = None
            if left > 0:
                try:
                    for byte_range in read.stream.ranges(read.size):
                        run = byte_range.run
                        place = _OF_MARKERS if is_marker(run) else self._find_object(run.object_number)
                        placed.append((place, byte_range))
                        left -= byte_range.size
                except KeyError as error:
                    failure, placed = MissingObject(f"object {error} is not in the ledger"), []
            ranges.append(placed)
            failures.append(failure)
            if turn.is_due(len(placed) * RUN_BYTES):
                await turn.next()
        return ranges, failures

    async def _cached(self, ranges: Sequence[Sequence[_Placed]], turn: Turn) -> list["_Piece"]:
        """What the cache has of each range, and which position of the store completes it."""
        pieces: list[_Piece] = []
        for group in ranges:
            for place, byte_range in group:
                if place is _OF_MARKERS:
                    pieces.append(_Piece([memoryview(marker_bytes(byte_range.run))]))
                    continue
                locator = place.locator
                copied = self.cache.copied_bytes
                views, covered = self.cache.get(locator, byte_range.start, byte_range.size)
                if turn.is_due(self.cache.copied_bytes - copied + RUN_BYTES):
                    await turn.next()
                piece = _Piece(views)
                pieces.append(piece)
                self.hit_bytes += min(covered, byte_range.size)
                if covered < byte_range.size:
                    self.missed_bytes += byte_range.size - covered
                    position = Position(locator, byte_range.start + covered, byte_range.size - covered)
                    piece.missing = _missing(position, place, byte_range.run)
        return pieces

    def alarm(self, event: str, **fields: object) -> None:
        """Stored data is not as the ledger says: an operator must look at it at once. Every alarm is counted;
        one a minute of each partition is logged, with the number of those left out."""
        self._log.error(event, **fields)
        self._alarm(event)

    async def _after_damage(self, stream: BatchStream, damage: Damaged, deadline: float) -> Exception | None:
        try:
            async with asyncio.timeout_at(None if deadline == math.inf else deadline):
                return None if await self._skip_damaged(stream, damage) else damage
        except TimeoutError:
            return StoreUnavailable(f"{damage}; what the store has of its object was not read in time")
        except StoreError as error:
            return error

    async def _skip_damaged(self, stream: BatchStream, damage: Damaged) -> bool:
        """If the damaged batch is before the requested offset, continue the stream after it. Raises
        StoreUnavailable."""
        if stream.log is None or stream.batches:
            return False
        run, position = stream.damaged_at
        try:
            locator = self._find_object(run.object_number).locator
        except KeyError:
            return False
        if run.dense:
            table = await self._tables.of(locator, run, stream.log)
            has_passed = table is not None and stream.skip_damaged(table)
        else:
            has_passed = stream.skip_to(await self._indexes.of(locator, run))
        if not has_passed:
            return False
        self.alarm(
            "fetch.damaged_batch_passed",
            topic=stream.log.topic_id.hex(),
            partition=stream.log.index,
            position=position,
            reason=str(damage),
        )
        return True

    async def _fill(
        self,
        stream: BatchStream,
        ranges: Sequence[_Placed],
        pieces: Sequence["_Piece"],
        turn: Turn,
    ) -> Exception | None:
        for (place, byte_range), piece in zip(ranges, pieces, strict=True):
            await turn.take(byte_range.size)
            missing = piece.missing
            stored = missing.data if missing is not None else None
            if missing is not None and stored is None:
                where = f"{place.locator} has no bytes at {byte_range.start} + {byte_range.size}"
                return missing.failure or MissingObject(where)
            try:
                taking = stream.taking(byte_range, [stored] if stored is not None else [], piece.views)
                whole = await _take(stream, taking, turn)
            except Damaged as error:
                if missing is not None and missing.is_of_whole and self.objects is not None:
                    self.objects.distrust(missing.name)
                return Damaged(f"{place.locator}: {error}")
            if self.objects is not None and missing is not None and stored is not None:
                self._keep(missing, stored, byte_range.start + whole - missing.position.start)
        return None

    def _keep(self, missing: MissingRange, stored: Buffer, checked: int) -> None:
        """Of a range that was read by itself: only whole batches go into the cache."""
        if checked > 0 and not missing.is_of_whole:
            position = missing.position
            self.cache.put_range(position.locator, position.start, memoryview(stored)[:checked])


async def _take(stream: BatchStream, taking: Generator[int, None, int], turn: Turn) -> int:
    """What `taking` returns, or 0 if the fetch has enough batches: it is served those."""
    while True:
        try:
            batches = next(taking)
        except StopIteration as end:
            whole: int = end.value
            return whole
        if turn.takes(batches):
            await turn.next()
        if turn.is_spent and stream.batches:
            stream.stop()
            return 0


def _missing(position: Position, place: ObjectPlace, run: Run) -> MissingRange:
    if run.dense:
        return MissingRange(position, place.size)
    return MissingRange(position, run.size, run.start)


class _Piece:
    """The bytes of a range: views of the cache from its start on (they may reach beyond its end), and what
    is missing after them."""

    __slots__ = ("missing", "views")

    def __init__(self, views: Sequence[Buffer]) -> None:
        self.views = views
        self.missing: MissingRange | None = None
