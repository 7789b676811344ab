"""Stored bytes by position: from the cache, and the rest in one call of the segment store."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from gateway.fetch.cache import RunCache
from gateway.fetch.frame_tables import FrameTables
from gateway.fetch.stream import BatchStream, ByteRange, Damaged
from gateway.telemetry.logs import QuietLog
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


_Placed: TypeAlias = tuple[str, ByteRange]
"""The locator of the object, and the range."""


class RunReader:
    """Fills streams. `locator` translates the ledger's object numbers (KeyError when one is deleted);
    `alarm` counts events that must not happen."""

    def __init__(
        self,
        segments: SegmentStore,
        cache: RunCache,
        locator: Callable[[int], str],
        alarm: Callable[[str], None],
    ) -> None:
        self._segments = segments
        # A consumer that catches up reads everything once. A buffer that is freed at once is still in the
        # processor's caches when the next read fills it; one that passes through a cache of many megabytes
        # is not.
        self._caches_reads = not segments.capabilities.keeps_reads
        self._locator = locator
        self._alarm = alarm
        self._tables = FrameTables(segments)
        self._log = QuietLog(ALARM_QUIET_S, keyed_by=("topic", "partition"))
        self.cache = cache

    async def read(self, reads: Sequence[ReadRequest], max_bytes: int) -> list[Exception | None]:
        """Read the next ranges of every stream, in one call of the store; streams beyond `max_bytes` in all,
        but never the first, are left for the next call. For each stream None, MissingObject or Damaged.

        Raises StoreUnavailable.
        """
        ranges, failures = self._plan(reads, max_bytes)
        pieces, misses = self._cached(ranges)
        if misses:
            stored = await self._segments.read([position for _, position in misses])
            for (piece, _), data in zip(misses, stored, strict=True):
                piece.stored = data
        at = 0
        for index, (read, group) in enumerate(zip(reads, ranges, strict=True)):
            if failures[index] is None and group:
                failure = self._fill(read.stream, group, pieces[at : at + len(group)])
                if isinstance(failure, Damaged) and await self._skip_damaged(read.stream, failure):
                    failure = None
                failures[index] = failure
            at += len(group)
        return failures

    def _plan(
        self, reads: Sequence[ReadRequest], max_bytes: int
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
                        placed.append((self._locator(byte_range.run.object_number), byte_range))
                        left -= byte_range.size
                except KeyError as error:
                    failure, placed = MissingObject(f"object {error} is not in the ledger"), []
            ranges.append(placed)
            failures.append(failure)
        return ranges, failures

    def _cached(
        self, ranges: Sequence[Sequence[_Placed]]
    ) -> tuple[list["_Piece"], list[tuple["_Piece", Position]]]:
        """What the cache has of each range, and which position of the store completes it."""
        pieces: list[_Piece] = []
        misses: list[tuple[_Piece, Position]] = []
        for group in ranges:
            for locator, byte_range in group:
                views, covered = self.cache.get(locator, byte_range.start, byte_range.size)
                piece = _Piece(views)
                pieces.append(piece)
                if covered < byte_range.size:
                    piece.missing = Position(locator, byte_range.start + covered, byte_range.size - covered)
                    misses.append((piece, piece.missing))
        return pieces, misses

    def alarm(self, event: str, **fields: object) -> None:
        """Stored data is not as the ledger says: an operator must look at it at once. Every alarm is counted;
        one a minute of each partition is logged, with the number of those left out."""
        self._log.error(event, **fields)
        self._alarm(event)

    async def _skip_damaged(self, stream: BatchStream, damage: Damaged) -> bool:
        """If the damaged batch is before the requested offset, continue the stream after it. Raises
        StoreUnavailable."""
        if stream.log is None or stream.batches:
            return False
        run, position = stream.damaged_at
        try:
            locator = self._locator(run.object_number)
        except KeyError:
            return False
        table = await self._tables.of(locator, run, stream.log)
        if table is None or not stream.skip_damaged(table):
            return False
        self.alarm(
            "fetch.damaged_batch_passed",
            topic=stream.log.topic_id.hex(),
            partition=stream.log.index,
            position=position,
            reason=str(damage),
        )
        return True

    def _fill(
        self, stream: BatchStream, ranges: Sequence[_Placed], pieces: Sequence["_Piece"]
    ) -> Exception | None:
        for (locator, byte_range), piece in zip(ranges, pieces, strict=True):
            missing, stored = piece.missing, piece.stored
            if missing is not None and stored is None:
                return MissingObject(f"{locator} has no bytes at {byte_range.start} + {byte_range.size}")
            try:
                whole = stream.take(byte_range, [stored] if stored is not None else [], piece.views)
            except Damaged as error:
                return Damaged(f"{locator}: {error}")
            if missing is not None and stored is not None and self._caches_reads:
                # Only whole batches go into the cache.
                cached = byte_range.start + whole - missing.start
                if cached > 0:
                    self.cache.put_range(locator, missing.start, memoryview(stored)[:cached])
        return None


class _Piece:
    """The bytes of a range: views of the cache from its start on (they may reach beyond its end), and what
    the store has of the rest."""

    __slots__ = ("missing", "stored", "views")

    def __init__(self, views: Sequence[Buffer]) -> None:
        self.views = views
        self.missing: Position | None = None
        self.stored: Buffer | None = None
