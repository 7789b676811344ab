"""Deletes unreadable bytes: drained runs, dead objects after the grace, orphans below the orphan floor.

The grace of a dead object is for readers that planned before it died. Their deadlines are on the monotonic
clock, so the grace must also pass in full on that clock, in case the host's clock is set ahead.

Where runs are merged, the records of a dead object may be in a segment that the newest snapshot does not know
yet. A ledger that is restored from that snapshot would lack them: so the object stays until a newer one is
there.

An object that the journal holds (`Journal.holds`) is neither garbage nor an orphan: entries are in it.

What a hold of a backup names stays until the hold is over or released; and nothing at all is deleted while an
operator copies the data of a running gateway.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import structlog

from gateway.coordination.shard import Shard
from gateway.housekeeping.draining import drain
from gateway.housekeeping.holds import BackupHolds
from gateway.housekeeping.orphan_scans import OrphanScans, Scan
from gateway.housekeeping.parts import in_parts
from gateway.housekeeping.producers import Hearing, in_slices
from gateway.telemetry.logs import QuietLog
from ledger.errors import StoreError
from ledger.numbered import ByNumber
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.state import ObjectState
from ledger.partitions.requests import ExpireProducers
from ledger.ports import SegmentStore
from ledger.requests import Done

log = structlog.get_logger(__name__)
quiet = QuietLog(3600.0, keyed_by=("locator",))

SLICE_OBJECTS = 500
SLICE_DEAD = 2_000
SLICE_PRODUCERS = 1_000
PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of producer.id.expiration.ms."""
FULL_GRACE_MS = 10_000
"""The grace while a disk is full and the data is not being copied. The floor may be raised at any time: an
upload under way is then stored again under a new key. A reader of a dead run plans again."""
HANGING_S = 5.0
"""If a deletion takes longer to fail, the store hangs; otherwise one object cannot be deleted."""
DRAIN_SLICE_S = 5.0
SCAN_SLICE_S = 5.0
"""After this time a scan for orphans waits for the next sweep: snapshots and retention have their turn."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep deleted."""

    objects: int
    orphans: int


class Deaths:
    """Since when objects have been dead, on a monotonic clock, and which snapshots name them (sans-I/O).

    Objects that died before the process began have no grace on that clock: their readers ended with the
    earlier process. Their grace ends by entry times alone, so that a gateway that is restarted more often
    than the grace takes still frees space.
    """

    def __init__(self, before_ms: int) -> None:
        """`before_ms`: the time of the last entry that an earlier process may have applied."""
        self._before_ms = before_ms
        self._noted = ByNumber[tuple[int, int, int]]()
        """By object: the entry time at which it died, entries that were applied and the monotonic time when
        it was seen dead first. It died in one of them."""

    def __len__(self) -> int:
        return len(self._noted)

    def __iter__(self) -> Iterator[int]:
        return iter(self._noted)

    def note(self, dead: Mapping[int, int], applied: int, elapsed_ms: int) -> None:
        """`dead` are dead objects now, with the entry times at which they died. One that had got runs again
        has died a second time."""
        noted = self._noted
        for number, died_ms in dead.items():
            known = noted.get(number)
            if known is None or known[0] != died_ms:
                noted[number] = died_ms, applied, elapsed_ms

    def forget(self, numbers: Iterable[int]) -> None:
        """These are not dead: they were deleted, or have runs again."""
        for number in numbers:
            self._noted.pop(number, None)

    def is_grace_over(self, number: int, died_ms: int, grace_ms: int, elapsed_ms: int) -> bool:
        """False for a death that was not noted."""
        known = self._noted.get(number)
        if known is None or known[0] != died_ms:
            return False
        return died_ms < self._before_ms or known[2] + grace_ms <= elapsed_ms

    def is_before(self, number: int, died_ms: int, snapshotted: int) -> bool:
        """Whether it is dead in a snapshot of so many entries. False for a death that was not noted."""
        known = self._noted.get(number)
        return known is not None and known[0] == died_ms and known[1] <= snapshotted


class GarbageCollector:
    """Deletes bytes first and journals it afterwards: a crash in between only repeats the deletion."""

    def __init__(  # noqa: PLR0913 - its clocks and callbacks
        self,
        shard: Shard,
        segments: SegmentStore,
        grace_ms: int,
        clock: Callable[[], int],
        wait_s: float,
        *,
        is_disk_full: Callable[[], bool] = lambda: False,
        alarm: Callable[[str], None] = lambda _: None,
        elapsed: Callable[[], int] | None = None,
        snapshotted: Callable[[], int] | None = None,
        holds: BackupHolds | None = None,
        is_being_copied: Callable[[], bool] = lambda: False,
    ) -> None:
        """`snapshotted`: entries in the newest snapshot; without it nothing waits for one. `is_being_copied`:
        whether an operator copies the data, so that nothing may be deleted. `alarm` is called
        with an event name at each failed deletion of an object. Without `elapsed`, monotonic ms, graces and
        idle times are measured by `clock` and entries alone."""
        self._shard = shard
        self._journal = shard.journal
        self._segments = segments
        self._grace_ms = grace_ms
        self._clock = clock
        self._wait_s = wait_s
        self._is_disk_full = is_disk_full
        self._alarm = alarm
        self._elapsed = elapsed
        self._snapshotted = snapshotted
        self._holds = holds
        self._is_being_copied = is_being_copied
        self._deaths = Deaths(shard.state.entry_time_ms)
        self.waits_for_snapshot = False
        """Whether the last sweep left objects because the newest snapshot names them."""
        self.held_bytes = 0
        """Of objects that the last sweep left because the journal holds them: pruning lets them go."""
        self.orphans_left = 0
        """Objects that no entry names and that the last scans kept: most are new, and may still be
        committed."""
        self._scans = OrphanScans(is_far=segments.capabilities.overlapping)
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Producers were heard by the owner before until its last entry. Graces go on: dead objects may have
        readers here."""
        self._scans.begin()
        elapsed_ms = self._elapsed() if self._elapsed is not None else 0
        self._hearing_by_clock, self._hearing_by_entries = (
            Hearing(self._shard.owner.recovered_ms or now, now, elapsed_ms, PRODUCER_EXPIRATION_MS)
            for now in (self._clock(), self._now_ms())
        )

    async def drain(self, loop_time: Callable[[], float]) -> None:
        """Drop unreadable runs. What takes long goes on when this is called again."""
        await drain(self._shard, loop_time, self._wait_s, loop_time() + DRAIN_SLICE_S)

    async def expire_producers(self, loop_time: Callable[[], float]) -> None:
        # A time that is not in the future may be from before the journal's clock was ahead.
        clock_ms, now_ms = self._clock(), self._now_ms()
        before_ms = self._silent_since(self._hearing_by_clock, clock_ms)
        ahead_before_ms = self._silent_since(self._hearing_by_entries, now_ms)
        doubted_ms = self._shard.doubted_ms()
        before_ms, ahead_before_ms = before_ms - doubted_ms, ahead_before_ms - doubted_ms
        request = ExpireProducers(before_ms, SLICE_PRODUCERS, (), clock_ms, ahead_before_ms)
        numbers, count = list[int](), 0
        async for log in in_slices(list(self._shard.state.logs.values())):
            expired = sum([request.has_expired(producer.last_ms) for producer in log.producers.values()])
            if expired:
                numbers.append(log.number)
                count += expired
            if count >= SLICE_PRODUCERS:
                await self._expire(replace(request, partitions=numbers), loop_time)
                numbers, count = [], 0
        if numbers:
            await self._expire(replace(request, partitions=numbers), loop_time)

    async def _expire(self, request: ExpireProducers, loop_time: Callable[[], float]) -> None:
        while await self._done(request, loop_time) == SLICE_PRODUCERS:
            pass

    async def sweep(self, loop_time: Callable[[], float]) -> Sweep:
        """Delete what is dead, raise the floor, then delete what is dead or orphaned below it."""
        grace_ms = min(self._grace_ms, FULL_GRACE_MS) if self._is_disk_full() else self._grace_ms
        # Before anything is journaled: on a full disk this frees the space for the journal.
        objects = await self._delete_garbage(grace_ms, loop_time)
        if self._passes(self._floor_ms(grace_ms)):
            await self._done(RaiseFloor(self._floor_ms(grace_ms)), loop_time)
            objects += await self._delete_garbage(grace_ms, loop_time)
        orphans, is_scanned = await self._delete_orphans(loop_time)
        if is_scanned and self._passes(self._floor_ms(grace_ms)):
            # The floor was left where it was, as no entry names what was found.
            await self._done(RaiseFloor(self._floor_ms(grace_ms)), loop_time)
            orphans += (await self._delete_orphans(loop_time))[0]
        return Sweep(objects, orphans)

    def _passes(self, floor_ms: int) -> bool:
        """Whether this floor passes anything: an idle gateway writes no entries for it."""
        objects, oldest_ms = self._shard.state.objects, self._scans.oldest_ms
        passes_orphan = oldest_ms is not None and objects.floor_ms <= oldest_ms < floor_ms
        return objects.passes(floor_ms) or passes_orphan

    def _floor_ms(self, grace_ms: int) -> int:
        """Earlier while time is in doubt. Not on a full disk: else nothing that was stored since the doubt
        began could be deleted, whatever topics are."""
        now_ms = self._now_ms()
        doubted_ms = 0 if self._is_disk_full() else self._shard.doubted_ms()
        # The ledger lets no floor pass the oldest pin: asking for more would be a request for nothing.
        return min(now_ms - grace_ms - doubted_ms, self._shard.state.objects.pinned_ms)

    async def sweep_if_full(self, loop_time: Callable[[], float]) -> None:
        """Sweep a full disk more often, without the full grace for garbage."""
        if self._is_disk_full():
            await self.sweep(loop_time)

    async def _delete_garbage(self, grace_ms: int, loop_time: Callable[[], float]) -> int:
        if not self._may_delete():
            return 0
        due: Sequence[ObjectState] = await self._found_due(grace_ms)
        if self._holds is not None:
            due = await self._holds.released(due, is_disk_full=self._is_disk_full())
        deleted, failure = 0, None
        for at in range(0, len(due), SLICE_OBJECTS):
            # Other tasks have run since these were found.
            if not self._may_delete():
                break
            over = self._over(due[at : at + SLICE_OBJECTS], grace_ms)
            part = [stored for stored in over if self._is_unneeded(stored)]
            gone = await self._delete({stored.locator for stored in part}) if part else frozenset[str]()
            deleted += len(gone)
            numbers = [stored.number for stored in part if stored.locator in gone]
            try:
                if numbers:
                    await self._done(ForgetObjects(numbers), loop_time)
                    self._deaths.forget(numbers)
            except (StoreError, TimeoutError) as error:
                # The next objects may be those that free space for the journal.
                failure = error
        if deleted:
            log.info("garbage.deleted", objects=deleted)
        if failure is not None:
            raise failure
        return deleted

    async def _found_due(self, grace_ms: int) -> list[ObjectState]:
        """The garbage that only holds of backups may keep. In slices: other tasks run after each few thousand
        dead objects."""
        due: list[ObjectState] = []
        held_bytes, waits_for_snapshot = 0, False
        async for dead in self._dead():
            over = self._over(dead, grace_ms)
            let_go = [stored for stored in over if not self._journal.holds(stored.locator)]
            held_bytes += sum(stored.size for stored in over) - sum(stored.size for stored in let_go)
            found = [stored for stored in let_go if self._is_dead_in_snapshot(stored)]
            waits_for_snapshot = waits_for_snapshot or len(found) < len(let_go)
            due += found
        self.held_bytes, self.waits_for_snapshot = held_bytes, waits_for_snapshot
        await self._forget_deaths()
        return due

    async def _dead(self) -> AsyncIterator[list[ObjectState]]:
        """All that is dead, slice by slice. The deaths of each slice are noted."""
        async for numbers in in_parts(self._shard.state.objects.garbage, SLICE_DEAD):
            state = self._shard.state
            known = map(state.objects.garbage.get, numbers)
            dead = [stored for stored in known if stored is not None]
            elapsed_ms = self._elapsed() if self._elapsed is not None else 0
            deaths = {stored.number: stored.closed_ms for stored in dead}
            self._deaths.note(deaths, state.applied, elapsed_ms)
            yield dead

    async def _forget_deaths(self) -> None:
        """Of objects that were deleted by another owner, or have runs again."""
        if len(self._deaths) > len(self._shard.state.objects.garbage):
            async for numbers in in_parts(self._deaths, SLICE_DEAD):
                garbage = self._shard.state.objects.garbage
                self._deaths.forget([number for number in numbers if number not in garbage])

    def _over(self, found: Sequence[ObjectState], grace_ms: int) -> list[ObjectState]:
        """Those that are dead, and whose grace is over."""
        objects, now_ms = self._shard.state.objects, self._now_ms()
        due = [
            stored
            for stored in found
            if objects.garbage.get(stored.number) is stored and objects.is_due(stored, now_ms, grace_ms)
        ]
        if self._elapsed is None:
            return due
        elapsed_ms, is_over = self._elapsed(), self._deaths.is_grace_over
        return [one for one in due if is_over(one.number, one.closed_ms, grace_ms, elapsed_ms)]

    def _is_unneeded(self, stored: ObjectState) -> bool:
        return not self._journal.holds(stored.locator) and self._is_dead_in_snapshot(stored)

    def _is_dead_in_snapshot(self, stored: ObjectState) -> bool:
        """Not asked for where nothing is merged, as the records are gone then, and not on a full disk, where
        no snapshot may fit."""
        if self._snapshotted is None or not self._shard.state.objects.segments or self._is_disk_full():
            return True
        return self._deaths.is_before(stored.number, stored.closed_ms, self._snapshotted())

    async def _delete(self, locators: Set[str]) -> Set[str]:
        """Returns the deleted ones. An object that cannot be deleted does not prevent the others."""
        try:
            await self._segments.delete(sorted(locators))
            return locators
        except StoreError:
            gone: set[str] = set()
        loop = asyncio.get_running_loop()
        for locator in sorted(locators):
            began = loop.time()
            try:
                await self._segments.delete([locator])
            except StoreError as error:
                if loop.time() - began > HANGING_S:
                    raise
                self._alarm("garbage.not_deleted")
                quiet.error("garbage.not_deleted", locator=locator, error=str(error))
            else:
                gone.add(locator)
        return gone

    async def _delete_orphans(self, loop_time: Callable[[], float]) -> tuple[int, bool]:
        """How many, and whether a scan is over with that. One that takes long goes on at the next sweep."""
        # Every commit that was decided before the floor rose is applied by now, and none after it may name
        # an object below it. So an object below it that no entry names will never be named.
        if not self._may_delete():
            return 0, False
        deleted, is_over, failure = 0, False, None
        for scan in self._scans.scans(self._shard.state.objects.floor_ms, loop_time()):
            try:
                deleted += await self._go_on_with(scan, loop_time)
            except StoreError as error:
                self._scans.failed(scan)
                failure = error
                continue
            if scan.is_over:
                is_over = True
                self._scans.ended(scan)
                self.orphans_left = self._scans.left
        if failure is not None:
            raise failure
        return deleted, is_over

    async def _go_on_with(self, scan: Scan, loop_time: Callable[[], float]) -> int:
        """How many orphans were deleted, up to the end of the scan or of the time it may take at once."""
        until_s, deleted = loop_time() + SCAN_SLICE_S, 0
        while not scan.is_over and loop_time() < until_s and self._may_delete():
            deleted += await self._delete_next(scan)
        return deleted

    async def _delete_next(self, scan: Scan) -> int:
        """Of one page, how many orphans were deleted."""
        page = scan.part_of(await self._segments.objects(scan.after, SLICE_OBJECTS))
        if not page:
            scan.is_over = True
            return 0
        objects = self._shard.state.objects
        held = {stored.locator for stored in page if self._journal.holds(stored.locator)}
        named = objects.by_locator
        unnamed = [one for one in page if one.locator not in named and one.locator not in held]
        orphans = {
            stored.locator
            for stored in unnamed
            if stored.created_ms < objects.floor_ms and not objects.keeps(stored.created_ms)
        }
        gone = await self._delete(orphans) if orphans else frozenset[str]()
        if gone:
            log.info("orphans.deleted", objects=len(gone))
        kept = [stored for stored in unnamed if stored.locator not in orphans]
        # What is held is not an orphan yet, and may become one.
        scan.saw(page, kept, (orphans - gone) | held)
        return len(gone)

    def _may_delete(self) -> bool:
        return self._segments.capabilities.deletes and not self._is_being_copied()

    def _silent_since(self, hearing: Hearing, now_ms: int) -> int:
        if self._elapsed is None:
            return now_ms - PRODUCER_EXPIRATION_MS
        return hearing.silent_since(now_ms, self._elapsed())

    def _now_ms(self) -> int:
        return max(self._clock(), self._shard.now_ms())

    async def _done(
        self,
        request: ExpireProducers | ForgetObjects | RaiseFloor,
        loop_time: Callable[[], float],
    ) -> int:
        result = await self._shard.ask(request, loop_time() + self._wait_s)
        assert isinstance(result, Done)
        return result.count
