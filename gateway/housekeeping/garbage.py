"""Lets bytes go that nobody can read: drained runs, dead objects after the grace, orphans below the floor."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from gateway.coordination.shard import Shard
from ledger.ports import SegmentStore
from ledger.requests import Done, DrainRuns, ExpireProducers, ForgetObjects, RaiseFloor

log = structlog.get_logger(__name__)

SLICE_RUNS = 2_000
SLICE_OBJECTS = 500
SLICE_PRODUCERS = 1_000
PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of producer.id.expiration.ms."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep let go."""

    objects: int
    orphans: int


class GarbageCollector:
    """Deletes bytes first and journals it afterwards: a crash in between only repeats the deletion."""

    def __init__(
        self, shard: Shard, segments: SegmentStore, grace_ms: int, clock: Callable[[], int], wait_s: float
    ) -> None:
        self._shard = shard
        self._segments = segments
        self._grace_ms = grace_ms
        self._clock = clock
        self._wait_s = wait_s
        self.orphans_left = 0
        """Objects that no entry names and that stayed at the last sweep: most are young, and may yet be
        committed."""

    async def drain(self, loop_time: Callable[[], float]) -> None:
        """Let go of unreadable runs, slice by slice, so that no single entry takes long to apply."""
        while self._shard.state.draining:
            if await self._done(DrainRuns(SLICE_RUNS), loop_time) == 0:
                return

    async def expire_producers(self, loop_time: Callable[[], float]) -> None:
        before = self._clock() - PRODUCER_EXPIRATION_MS
        while await self._done(ExpireProducers(before, SLICE_PRODUCERS), loop_time) == SLICE_PRODUCERS:
            pass

    async def sweep(self, loop_time: Callable[[], float]) -> Sweep:
        """Raise the floor, then delete what is dead or orphaned below it."""
        now = max(self._clock(), self._shard.state.entry_time_ms)
        await self._done(RaiseFloor(now - self._grace_ms), loop_time)
        if not self._segments.capabilities.deletes:
            return Sweep(0, 0)
        return Sweep(await self._delete_garbage(now, loop_time), await self._delete_orphans())

    async def _delete_garbage(self, now_ms: int, loop_time: Callable[[], float]) -> int:
        due = list(self._shard.state.files.due_garbage(now_ms, self._grace_ms))
        for at in range(0, len(due), SLICE_OBJECTS):
            part = due[at : at + SLICE_OBJECTS]
            await self._segments.delete([stored.locator for stored in part])
            await self._done(ForgetObjects([stored.number for stored in part]), loop_time)
        if due:
            log.info("garbage.deleted", objects=len(due))
        return len(due)

    async def _delete_orphans(self) -> int:
        # Every commit that was decided before the floor rose is applied by now, and none after it may
        # name an object below it: what no entry knows, no entry ever will.
        files = self._shard.state.files
        deleted, left, after = 0, 0, ""
        while page := await self._segments.objects(after, SLICE_OBJECTS):
            after = page[-1].locator
            unnamed = [stored for stored in page if stored.locator not in files.by_locator]
            orphans = [
                stored.locator
                for stored in unnamed
                if stored.created_ms < files.floor_ms and not files.keeps(stored.created_ms)
            ]
            left += len(unnamed) - len(orphans)
            if orphans:
                await self._segments.delete(orphans)
                deleted += len(orphans)
                log.info("orphans.deleted", objects=len(orphans))
        self.orphans_left = left
        return deleted

    async def _done(
        self,
        request: DrainRuns | ExpireProducers | ForgetObjects | RaiseFloor,
        loop_time: Callable[[], float],
    ) -> int:
        answer = await self._shard.ask(request, loop_time() + self._wait_s)
        assert isinstance(answer, Done)
        return answer.count
