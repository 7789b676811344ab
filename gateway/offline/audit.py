"""Every byte of a ledger that a fetch can reach, and every object that is stored, for `dragoman audit`.

`doctor` looks at a sample and does so quickly; this reads all of it, from the front of each object to its
back, in pieces. What is right and what is wrong is decided in `ledger/auditing`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import Final

from gateway.offline.backup import all_pages
from ledger.auditing.damages import Damage, DamageKind
from ledger.auditing.frames import PIECE_BYTES, Checked, ObjectGone, WalObjectCheck
from ledger.auditing.objects import (
    Listing,
    ObjectCounts,
    check_table,
    lost_runs,
    object_uses,
    stray_damage,
)
from ledger.auditing.offsets import check_offsets
from ledger.auditing.segments import SegmentCheck
from ledger.auditing.windows import ObjectRuns, objects_with_runs, places_of, without_overlaps
from ledger.keys import is_segment
from ledger.ports import SegmentStore
from ledger.state import LedgerState
from ledger.types import Buffer, Position

MAX_DAMAGES: Final = 10_000
"""Named one by one; more are counted."""
LOCAL_READERS: Final = 2
FAR_READERS: Final = 8
"""Objects that are read at a time."""


@dataclass(slots=True)
class Findings:
    """The damages, and how many there are of each kind."""

    damages: list[Damage] = field(default_factory=list)
    counts: Counter[DamageKind] = field(default_factory=Counter)

    def report(self, damage: Damage) -> None:
        self.counts[damage.kind] += 1
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(damage)

    def keep(self, holds: Callable[[Damage], bool]) -> None:
        """Forget the others. Of damages that are not named it is unknown what they are: they stay counted,
        unless none of their kind is left."""
        for damage in self.damages:
            self.counts[damage.kind] -= not holds(damage)
        self.damages = [damage for damage in self.damages if holds(damage)]
        self.counts = +self.counts

    def forget(self, kind: DamageKind) -> None:
        """All damages of this kind, named or not, are repaired."""
        self.damages = [damage for damage in self.damages if damage.kind is not kind]
        del self.counts[kind]

    @property
    def unnamed(self) -> int:
        """How many are counted alone."""
        return self.counts.total() - len(self.damages)


@dataclass(slots=True)
class AuditProgress:
    objects: int = 0
    all_objects: int = 0
    read_bytes: int = 0
    all_bytes: int = 0


@dataclass(slots=True)
class AuditTotals:
    """What was looked at. `offsets`: from the log start offsets to the high watermarks."""

    topics: int = 0
    partitions: int = 0
    offsets: int = 0
    runs: int = 0
    batches: int = 0
    records: int = 0
    read_bytes: int = 0
    objects: ObjectCounts = field(default_factory=ObjectCounts)
    kept: list[str] = field(default_factory=list)


class StoreAudit:
    """One audit of a state against its segment store, which stays as it is."""

    def __init__(
        self,
        state: LedgerState,
        segments: SegmentStore,
        findings: Findings,
        grace_ms: int,
        on_progress: Callable[[AuditProgress], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._segments = segments
        self._report = findings.report
        self._on_progress = on_progress
        self._uses = object_uses(state)
        self._listing = Listing(state, self._uses, grace_ms)
        self._place_of = places_of(state)
        self._progress = AuditProgress()
        self.totals = AuditTotals()

    async def run(self, topics: Set[str] | None = None) -> AuditTotals:
        """Batches and offsets of these topics alone, if any are given; objects of all. StoreError if the
        store cannot be reached."""
        for damage in check_table(self._state, self._uses):
            self._report(damage)
        chosen = self._check_offsets(topics)
        async for page in all_pages(self._segments):
            for found in self._listing.see(page):
                self._report(stray_damage(found))
        self.totals.objects, self.totals.kept = self._listing.counts, self._listing.kept
        await self._read(None if topics is None else chosen)
        return self.totals

    def _check_offsets(self, topics: Set[str] | None) -> Set[int]:
        """The partitions of the topics, by number, that ever had a record or a request."""
        totals, chosen = self.totals, set[int]()
        for topic in self._state.topics.by_id.values():
            if topics is None or topic.name in topics:
                totals.topics += 1
                totals.partitions += len(topic.partitions)
        for number, log in self._state.logs.items():
            if log.deleted or (topics is not None and self._place_of(number).topic not in topics):
                continue
            chosen.add(number)
            totals.offsets += log.high_watermark - log.log_start
            for damage in check_offsets(self._place_of(number), log):
                self._report(damage)
        return chosen

    async def _read(self, partitions: Set[int] | None) -> None:
        # With some partitions alone, these are upper bounds.
        used = [use for use in self._uses.values() if use.readable]
        self._progress.all_objects, self._progress.all_bytes = len(used), sum(use.end for use in used)
        waiting = objects_with_runs(self._state, self._uses, partitions)
        readers = FAR_READERS if self._segments.capabilities.overlapping else LOCAL_READERS
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(readers):
                    tasks.create_task(self._read_objects(waiting))
        except BaseExceptionGroup as group:
            raise _first_of(group) from None

    async def _read_objects(self, waiting: Iterator[ObjectRuns]) -> None:
        for found in waiting:
            self.totals.runs += len(found.runs)
            await self._read_object(found)
            self._progress.objects += 1
            self._progress.read_bytes += self._uses[found.number].end
            self._on_progress(self._progress)
            await asyncio.sleep(0)

    async def _read_object(self, found: ObjectRuns) -> None:
        runs = without_overlaps(found, self._place_of, self._report)
        size = self._listing.sizes.get(found.number)
        if size is None:
            self._lose(found, None)
            return
        short = [run for run in runs if run.end > size]
        if short:
            self._lose(found._replace(runs=short), size)
            runs = [run for run in runs if run.end <= size]
        # Of a short object it is known already that its last frame is cut.
        report = self._report_but_frames if short else self._report
        kind = SegmentCheck if is_segment(found.locator) else WalObjectCheck
        check = kind(found.locator, size, runs, self._place_of, report)
        try:
            await self._drive(check, size)
        except ObjectGone:
            self._lose(found._replace(runs=runs), None)
        self._count(check.checked)

    async def _drive(self, check: WalObjectCheck | SegmentCheck, size: int) -> None:
        """Read what the check asks for. ObjectGone."""
        window, reading = _Window(self._segments, check.locator, size), check.reading()
        try:
            wanted = next(reading)
            while True:
                wanted = reading.send(await window.read(wanted))
        except StopIteration:
            return
        finally:
            self.totals.read_bytes += window.read_bytes

    def _report_but_frames(self, damage: Damage) -> None:
        if damage.kind is not DamageKind.DAMAGED_FRAME:
            self._report(damage)

    def _lose(self, found: ObjectRuns, size: int | None) -> None:
        for damage in lost_runs(found.locator, found.runs, size, self._place_of):
            self._report(damage)

    def _count(self, checked: Checked) -> None:
        self.totals.batches += checked.batches
        self.totals.records += checked.records


class _Window:
    """Reads an object from front to back with few calls: small pieces are cut out of the last one."""

    def __init__(self, segments: SegmentStore, locator: str, size: int) -> None:
        self._segments = segments
        self._locator = locator
        self._size = size
        self._start = 0
        self._data = memoryview(b"")
        self.read_bytes = 0

    async def read(self, wanted: Position) -> Buffer | None:
        """None if the store does not have these bytes. What is not of the object is read by itself."""
        if wanted.locator != self._locator:
            return await self._read(wanted)
        begin = wanted.start - self._start
        if begin >= 0 and begin + wanted.size <= len(self._data):
            return self._data[begin : begin + wanted.size]
        start = wanted.start - wanted.start % PIECE_BYTES
        if wanted.start + wanted.size > start + PIECE_BYTES:
            start = wanted.start
        size = min(max(PIECE_BYTES, wanted.size), self._size - start)
        data = await self._read(Position(wanted.locator, start, size))
        if data is None:
            return None
        self._start, self._data = start, memoryview(data)
        return self._data[wanted.start - start : wanted.start - start + wanted.size]

    async def _read(self, wanted: Position) -> Buffer | None:
        (data,) = await self._segments.read([wanted])
        self.read_bytes += 0 if data is None else len(data)
        return data


async def delete_stray(state: LedgerState, segments: SegmentStore) -> list[str]:
    """Delete the objects that no entry names and none ever will; never one that is live, garbage or kept.
    Returns their locators."""
    listing, deleted = Listing(state, {}, 0), list[str]()
    async for page in all_pages(segments):
        stray = [found.locator for found in listing.see(page)]
        if stray:
            await segments.delete(stray)
            deleted += stray
    return deleted


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_of(error) if isinstance(error, BaseExceptionGroup) else error
