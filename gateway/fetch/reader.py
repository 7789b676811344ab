"""Stored bytes by position: from the cache, and the rest in one call of the segment store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.fetch.cache import RunCache
from gateway.fetch.stream import BatchStream, Damaged, Stretch
from gateway.telemetry.logs import QuietLog
from ledger.ports import SegmentStore
from ledger.types import Buffer, Position

ALARM_QUIET_S: Final = 60.0
"""Every fetch of a partition meets the same damage again, and clients try again at once."""


class Missing(Exception):
    """An object or range that the ledger named is not in the store: the plan is stale, or data is lost."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A stream, and about how many bytes it should be given."""

    stream: BatchStream
    size: int


class RunReader:
    """Fills streams. `locator` translates the ledger's object numbers (KeyError when one is gone);
    `alarm` counts what must not happen."""

    def __init__(
        self,
        segments: SegmentStore,
        cache: RunCache,
        locator: Callable[[int], str],
        alarm: Callable[[], None],
    ) -> None:
        self._segments = segments
        self._locator = locator
        self._alarm = alarm
        self._log = QuietLog(ALARM_QUIET_S, keyed_by=("topic", "partition"))
        self.cache = cache

    async def read(self, wishes: Sequence[Wish], max_bytes: int) -> list[Exception | None]:
        """Give every stream what it asks for next, in one read of the store; those beyond `max_bytes` in
        all are left for the next call, but never the first. For each stream None, Missing or Damaged.

        Raises StoreUnavailable.
        """
        asked: list[list[tuple[str, Stretch]]] = []
        failures: list[Exception | None] = []
        left = max_bytes
        for wish in wishes:
            stretches: list[tuple[str, Stretch]] = []
            failure: Exception | None = None
            if left > 0:
                try:
                    for stretch in wish.stream.stretches(wish.size):
                        stretches.append((self._locator(stretch.run.object_number), stretch))
                        left -= stretch.size
                except KeyError as error:
                    failure, stretches = Missing(f"object {error} is not in the ledger"), []
            asked.append(stretches)
            failures.append(failure)
        pieces = await self.pieces(
            [Position(locator, s.start, s.size) for group in asked for locator, s in group]
        )
        at = 0
        for index, (wish, group) in enumerate(zip(wishes, asked, strict=True)):
            if failures[index] is None:
                failures[index] = self._give(wish.stream, group, pieces[at : at + len(group)])
            at += len(group)
        return failures

    async def pieces(self, positions: Sequence[Position]) -> list[list[Buffer] | None]:
        """For each position buffers that cover it (the last may reach further), or None: not there."""
        found: list[list[Buffer] | None] = []
        misses: list[Position] = []
        missed_at: list[int] = []
        for position in positions:
            views, covered = self.cache.get(position.locator, position.start, position.size)
            found.append(list(views))
            if covered < position.size:
                missed_at.append(len(found) - 1)
                misses.append(Position(position.locator, position.start + covered, position.size - covered))
        if misses:
            for index, data in zip(missed_at, await self._segments.read(misses), strict=True):
                views_before = found[index]
                if data is None:
                    found[index] = None
                elif views_before is not None:
                    views_before.append(data)
        return found

    def alarm(self, event: str, **fields: object) -> None:
        """Stored data is not as the ledger says: for a human to look at, now. Every one is counted; of a
        partition one a minute is written, with how many were left out."""
        self._log.error(event, **fields)
        self._alarm()

    def _give(
        self,
        stream: BatchStream,
        stretches: Sequence[tuple[str, Stretch]],
        pieces: Sequence[Sequence[Buffer] | None],
    ) -> Exception | None:
        for (locator, stretch), data in zip(stretches, pieces, strict=True):
            if data is None:
                return Missing(f"{locator} has no bytes at {stretch.start} + {stretch.size}")
            try:
                whole = stream.take(stretch, data)
            except Damaged as error:
                return Damaged(f"{locator}: {error}")
            self._keep(locator, stretch.start, data, whole)
        return None

    def _keep(self, locator: str, start: int, data: Sequence[Buffer], whole: int) -> None:
        """Put what came from the store into the cache, as far as it is whole batches."""
        cached = sum(map(len, data[:-1]))
        last = data[-1] if data else b""
        if whole > cached:
            self.cache.put_stretch(locator, start + cached, memoryview(last)[: whole - cached])
