"""Lets bytes go that nobody can read: drained runs, dead objects after the grace, orphans below the floor."""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass

import structlog

from gateway.coordination.shard import Shard
from gateway.telemetry.logs import QuietLog
from ledger.errors import StoreError
from ledger.ports import SegmentStore
from ledger.requests import Done, DrainRuns, ExpireProducers, ForgetObjects, RaiseFloor

log = structlog.get_logger(__name__)
quiet = QuietLog(3600.0, keyed_by=("locator",))

SLICE_RUNS = 2_000
SLICE_OBJECTS = 500
SLICE_PRODUCERS = 1_000
PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of producer.id.expiration.ms."""
FULL_GRACE_MS = 10_000
"""The grace while a disk is full and nobody copies the data. The floor may be raised at any time: an upload
under way is then stored again under a new key. A reader that still looked at a dead run looks again."""
HANGING_S = 5.0
"""A deletion that fails after this long: it is the store that hangs, not an object that is stuck."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep let go."""

    objects: int
    orphans: int


class GarbageCollector:
    """Deletes bytes first and journals it afterwards: a crash in between only repeats the deletion."""

    def __init__(
        self,
        shard: Shard,
        segments: SegmentStore,
        grace_ms: int,
        clock: Callable[[], int],
        wait_s: float,
        *,
        is_disk_full: Callable[[], bool] = lambda: False,
        alarm: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`alarm` is called, with a name for it, for every object that cannot be deleted, at each try."""
        self._shard = shard
        self._segments = segments
        self._grace_ms = grace_ms
        self._clock = clock
        self._wait_s = wait_s
        self._is_disk_full = is_disk_full
        self._alarm = alarm
        self.orphans_left = 0
        """Objects that no entry names and that stayed at the last sweep: most are young, and may yet be
        committed."""

    async def drain(self, loop_time: Callable[[], float]) -> None:
        """Let go of unreadable runs, slice by slice, so that no single entry takes long to apply."""
        while self._shard.state.draining:
            if await self._done(DrainRuns(SLICE_RUNS), loop_time) == 0:
                return

    async def expire_producers(self, loop_time: Callable[[], float]) -> None:
        # A time that is not in the future may be from before the journal got ahead.
        clock_ms = self._clock()
        before_ms, ahead_before_ms = (now - PRODUCER_EXPIRATION_MS for now in (clock_ms, self._now_ms()))
        request = ExpireProducers(before_ms, SLICE_PRODUCERS, clock_ms, ahead_before_ms)
        while await self._done(request, loop_time) == SLICE_PRODUCERS:
            pass

    async def sweep(self, loop_time: Callable[[], float]) -> Sweep:
        """Delete what is dead, raise the floor, then delete what is dead or orphaned below it."""
        grace_ms = min(self._grace_ms, FULL_GRACE_MS) if self._is_disk_full() else self._grace_ms
        # Before anything is journaled: on a full disk this is what makes the space for it.
        objects = await self._delete_garbage(grace_ms, loop_time)
        await self._done(RaiseFloor(self._now_ms() - grace_ms), loop_time)
        objects += await self._delete_garbage(grace_ms, loop_time)
        return Sweep(objects, await self._delete_orphans())

    async def sweep_if_full(self, loop_time: Callable[[], float]) -> None:
        """A disk that is full is swept more often, and garbage does not stay for the whole grace."""
        if self._is_disk_full():
            await self.sweep(loop_time)

    async def _delete_garbage(self, grace_ms: int, loop_time: Callable[[], float]) -> int:
        if not self._segments.capabilities.deletes:
            return 0
        due = list(self._shard.state.files.due_garbage(self._now_ms(), grace_ms))
        deleted, failure = 0, None
        for at in range(0, len(due), SLICE_OBJECTS):
            part = due[at : at + SLICE_OBJECTS]
            gone = await self._delete({stored.locator for stored in part})
            deleted += len(gone)
            numbers = [stored.number for stored in part if stored.locator in gone]
            try:
                if numbers:
                    await self._done(ForgetObjects(numbers), loop_time)
            except (StoreError, TimeoutError) as error:
                # What is due next may be what gives the journal its space again.
                failure = error
        if deleted:
            log.info("garbage.deleted", objects=deleted)
        if failure is not None:
            raise failure
        return deleted

    async def _delete(self, locators: Set[str]) -> Set[str]:
        """Returns those that are gone: one that cannot be deleted keeps none of the others."""
        try:
            await self._segments.delete(sorted(locators))
            return locators
        except StoreError:
            gone: set[str] = set()
        for locator in sorted(locators):
            began = time.monotonic()
            try:
                await self._segments.delete([locator])
            except StoreError as error:
                if time.monotonic() - began > HANGING_S:
                    raise
                self._alarm("garbage.not_deleted")
                quiet.error("garbage.not_deleted", locator=locator, error=str(error))
            else:
                gone.add(locator)
        return gone

    async def _delete_orphans(self) -> int:
        # Every commit that was decided before the floor rose is applied by now, and none after it may
        # name an object below it: what no entry knows, no entry ever will.
        if not self._segments.capabilities.deletes:
            return 0
        files = self._shard.state.files
        deleted, left, after = 0, 0, ""
        while page := await self._segments.objects(after, SLICE_OBJECTS):
            after = page[-1].locator
            unnamed = [stored for stored in page if stored.locator not in files.by_locator]
            orphans = {
                stored.locator
                for stored in unnamed
                if stored.created_ms < files.floor_ms and not files.keeps(stored.created_ms)
            }
            left += len(unnamed) - len(orphans)
            if orphans:
                gone = await self._delete(orphans)
                deleted += len(gone)
                if gone:
                    log.info("orphans.deleted", objects=len(gone))
        self.orphans_left = left
        return deleted

    def _now_ms(self) -> int:
        return max(self._clock(), self._shard.now_ms())

    async def _done(
        self,
        request: DrainRuns | ExpireProducers | ForgetObjects | RaiseFloor,
        loop_time: Callable[[], float],
    ) -> int:
        answer = await self._shard.ask(request, loop_time() + self._wait_s)
        assert isinstance(answer, Done)
        return answer.count
