"""Every byte of a ledger that a fetch can reach, and every object that is stored, for `dragoman audit`.

`doctor` looks at a sample and does so quickly; this reads all of it, from the front of each object to its
back, in pieces. What is right and what is wrong is decided in `ledger/auditing`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.offline.backup import all_pages
from ledger.auditing.damages import Damage, DamageKind
from ledger.auditing.frames import Reading
from ledger.auditing.markers import MergedMarker, check_transactions, markers_in_runs, merged_markers
from ledger.auditing.objects import Listing, ObjectCounts, check_table, object_uses, stray_damage
from ledger.auditing.offsets import check_offsets
from ledger.auditing.settled import check_settled
from ledger.auditing.tasks import MAX_DAMAGES, ObjectResult, ObjectTask, audit_object
from ledger.auditing.windows import ObjectRuns, objects_with_runs, places_of
from ledger.keys import is_inline
from ledger.ports import SegmentStore
from ledger.settled.state import SettledLedgers
from ledger.state import LedgerState

LOCAL_READERS: Final = 2
FAR_READERS: Final = 8
"""Objects that are read at a time."""

TakeResult: TypeAlias = Callable[[ObjectTask, ObjectResult], None]
AuditEngine: TypeAlias = Callable[[Iterator[ObjectTask], TakeResult], Awaitable[None]]
"""Reads the objects of all tasks elsewhere, and gives each result to the second argument. StoreError if the
store cannot be reached."""


@dataclass(slots=True)
class Findings:
    """The damages, and how many there are of each kind."""

    damages: list[Damage] = field(default_factory=list)
    counts: Counter[DamageKind] = field(default_factory=Counter)

    def report(self, damage: Damage) -> None:
        self.counts[damage.kind] += 1
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(damage)

    def take(self, result: ObjectResult) -> None:
        """All damages of an object."""
        for damage in result.damages:
            self.report(damage)
        self.counts.update(result.unnamed)

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
    """What was looked at. `offsets`: from the log start offsets to the high watermarks. `runs`: of batches in
    objects; `markers`: ends of transactions that are in none, an offset each. `settled`: settled ledgers."""

    topics: int = 0
    partitions: int = 0
    offsets: int = 0
    runs: int = 0
    markers: int = 0
    batches: int = 0
    records: int = 0
    read_bytes: int = 0
    settled: int = 0
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
        engine: AuditEngine | None = None,
    ) -> None:
        """Without an `engine` this process reads the objects."""
        self._state = state
        self._segments = segments
        self._findings = findings
        self._report = findings.report
        self._engine = engine
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
        self._listing.see_unlisted()
        self.totals.objects, self.totals.kept = self._listing.counts, self._listing.kept
        await self._read(None if topics is None else chosen)
        await self._read_settled(chosen)
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
            totals.markers += markers_in_runs(log)
            for check in (check_offsets, check_transactions):
                for damage in check(self._place_of(number), log):
                    self._report(damage)
        return chosen

    async def _read(self, partitions: Set[int] | None) -> None:
        # With some partitions alone, these are upper bounds.
        used = [use for use in self._uses.values() if use.readable]
        self._progress.all_objects, self._progress.all_bytes = len(used), sum(use.end for use in used)
        found = map(self._task, objects_with_runs(self._state, self._uses, partitions))
        if self._engine is not None:
            inline: list[ObjectTask] = []
            await self._engine(_elsewhere(found, inline), self._take)
            # What is inside of entries only this process can read.
            await self._read_objects(iter(inline))
            return
        readers = FAR_READERS if self._segments.capabilities.overlapping else LOCAL_READERS
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(readers):
                    tasks.create_task(self._read_objects(found))
        except BaseExceptionGroup as errors:
            raise _first_of(errors) from None

    def _task(self, found: ObjectRuns) -> ObjectTask:
        numbers = {run.number for run in found.runs}
        places = {number: self._place_of(number) for number in numbers}
        size = self._listing.sizes.get(found.number)
        return ObjectTask(found.locator, size, found.runs, places, self._markers_of(found))

    def _markers_of(self, found: ObjectRuns) -> list[MergedMarker]:
        """That a segment must have."""
        return [
            marker
            for run in found.runs
            if not run.dense
            for marker in merged_markers(self._state.logs[run.number], run.base, run.last)
        ]

    async def _read_objects(self, tasks: Iterator[ObjectTask]) -> None:
        for task in tasks:
            self._take(task, await self._audited(task))
            await asyncio.sleep(0)

    async def _audited(self, task: ObjectTask) -> ObjectResult:
        result = ObjectResult()
        await self._drive(audit_object(task, result))
        return result

    async def _read_settled(self, partitions: Set[int]) -> None:
        """The settled ledgers of these partitions."""
        for number, known in list(self._state.part(SettledLedgers).items()):
            if number in partitions:
                self.totals.settled += 1
                locator = self._state.objects.locator(known.object_number)
                await self._drive(check_settled(self._place_of(number), locator, known, self._report))

    async def _drive(self, reading: Reading[None]) -> None:
        """Read what a check asks for."""
        try:
            wanted = next(reading)
            while True:
                (data,) = await self._segments.read([wanted])
                wanted = reading.send(data)
        except StopIteration:
            return

    def _take(self, task: ObjectTask, result: ObjectResult) -> None:
        """Count what was found in an object."""
        totals, progress = self.totals, self._progress
        totals.runs += result.runs
        totals.batches += result.batches
        totals.records += result.records
        totals.read_bytes += result.read_bytes
        self._findings.take(result)
        progress.objects += 1
        progress.read_bytes += max(run.end for run in task.runs)
        self._on_progress(progress)


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


def _elsewhere(tasks: Iterator[ObjectTask], inline: list[ObjectTask]) -> Iterator[ObjectTask]:
    for task in tasks:
        if is_inline(task.locator):
            inline.append(task)
        else:
            yield task


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_of(error) if isinstance(error, BaseExceptionGroup) else error
