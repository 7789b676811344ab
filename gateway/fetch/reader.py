"""Stored bytes by position: from the cache, and the rest in one call of the segment store."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from gateway.fetch.cache import RunCache
from gateway.fetch.frame_tables import FrameTables
from gateway.fetch.stream import BatchStream, Damaged, Stretch
from gateway.telemetry.logs import QuietLog
from ledger.ports import SegmentStore
from ledger.types import Buffer, Position

ALARM_QUIET_S: Final = 60.0
"""Every fetch of a partition meets the same damage again, and clients try again at once."""


class Missing(Exception):
    """An object or range that the ledger named is not in the store: the plan is stale, or data is lost."""


class Wish(NamedTuple):
    """A stream, and about how many bytes it should be given."""

    stream: BatchStream
    size: int


_Placed: TypeAlias = tuple[str, Stretch]
"""A stretch, and the locator of its object."""


class RunReader:
    """Fills streams. `locator` translates the ledger's object numbers (KeyError when one is gone);
    `alarm` counts what must not happen."""

    def __init__(
        self,
        segments: SegmentStore,
        cache: RunCache,
        locator: Callable[[int], str],
        alarm: Callable[[str], None],
    ) -> None:
        self._segments = segments
        # Who catches up reads everything once: buffers that go back at once are still in the processor's
        # caches when they are read into again, those that pass through a cache of many megabytes are not.
        self._caches_reads = not segments.capabilities.keeps_reads
        self._locator = locator
        self._alarm = alarm
        self._tables = FrameTables(segments)
        self._log = QuietLog(ALARM_QUIET_S, keyed_by=("topic", "partition"))
        self.cache = cache

    async def read(self, wishes: Sequence[Wish], max_bytes: int) -> list[Exception | None]:
        """Give every stream what it asks for next, in one read of the store; those beyond `max_bytes` in
        all are left for the next call, but never the first. For each stream None, Missing or Damaged.

        Raises StoreUnavailable.
        """
        asked, failures = self._plan(wishes, max_bytes)
        pieces, misses = self._cached(asked)
        if misses:
            stored = await self._segments.read([position for _, position in misses])
            for (piece, _), data in zip(misses, stored, strict=True):
                piece.stored = data
        at = 0
        for index, (wish, group) in enumerate(zip(wishes, asked, strict=True)):
            if failures[index] is None and group:
                failure = self._give(wish.stream, group, pieces[at : at + len(group)])
                if isinstance(failure, Damaged) and await self._pass_damaged(wish.stream, failure):
                    failure = None
                failures[index] = failure
            at += len(group)
        return failures

    def _plan(
        self, wishes: Sequence[Wish], max_bytes: int
    ) -> tuple[list[list[_Placed]], list[Exception | None]]:
        """What to read for each stream, or why that cannot be."""
        asked: list[list[_Placed]] = []
        failures: list[Exception | None] = []
        left = max_bytes
        for wish in wishes:
            placed: list[_Placed] = []
            failure: Exception | None = None
            if left > 0:
                try:
                    for stretch in wish.stream.stretches(wish.size):
                        placed.append((self._locator(stretch.run.object_number), stretch))
                        left -= stretch.size
                except KeyError as error:
                    failure, placed = Missing(f"object {error} is not in the ledger"), []
            asked.append(placed)
            failures.append(failure)
        return asked, failures

    def _cached(
        self, asked: Sequence[Sequence[_Placed]]
    ) -> tuple[list["_Piece"], list[tuple["_Piece", Position]]]:
        """What the cache has of each stretch, and what is missing in which of them."""
        pieces: list[_Piece] = []
        misses: list[tuple[_Piece, Position]] = []
        for group in asked:
            for locator, stretch in group:
                views, covered = self.cache.get(locator, stretch.start, stretch.size)
                piece = _Piece(views)
                pieces.append(piece)
                if covered < stretch.size:
                    piece.missing = Position(locator, stretch.start + covered, stretch.size - covered)
                    misses.append((piece, piece.missing))
        return pieces, misses

    def alarm(self, event: str, **fields: object) -> None:
        """Stored data is not as the ledger says: for a human to look at, now. Every one is counted; of a
        partition one a minute is written, with how many were left out."""
        self._log.error(event, **fields)
        self._alarm(event)

    async def _pass_damaged(self, stream: BatchStream, damage: Damaged) -> bool:
        """Where a damaged batch lies before what is asked for, let the stream go on behind it. Raises
        StoreUnavailable."""
        if stream.log is None or stream.batches:
            return False
        run, position = stream.damaged_at
        try:
            locator = self._locator(run.object_number)
        except KeyError:
            return False
        table = await self._tables.of(locator, run, stream.log)
        if table is None or not stream.pass_damaged(table):
            return False
        self.alarm(
            "fetch.damaged_batch_passed",
            topic=stream.log.topic_id.hex(),
            partition=stream.log.index,
            position=position,
            reason=str(damage),
        )
        return True

    def _give(
        self, stream: BatchStream, stretches: Sequence[_Placed], pieces: Sequence["_Piece"]
    ) -> Exception | None:
        for (locator, stretch), piece in zip(stretches, pieces, strict=True):
            missing, stored = piece.missing, piece.stored
            if missing is not None and stored is None:
                return Missing(f"{locator} has no bytes at {stretch.start} + {stretch.size}")
            try:
                whole = stream.take(stretch, [stored] if stored is not None else [], piece.views)
            except Damaged as error:
                return Damaged(f"{locator}: {error}")
            if missing is not None and stored is not None and self._caches_reads:
                # Kept as far as it is whole batches.
                kept = stretch.start + whole - missing.start
                if kept > 0:
                    self.cache.put_stretch(locator, missing.start, memoryview(stored)[:kept])
        return None


class _Piece:
    """The bytes of a stretch: what the cache has of it from the beginning on (perhaps reaching further), and
    what the store gave of the rest."""

    __slots__ = ("missing", "stored", "views")

    def __init__(self, views: Sequence[Buffer]) -> None:
        self.views = views
        self.missing: Position | None = None
        self.stored: Buffer | None = None
