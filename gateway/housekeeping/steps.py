"""Which steps of housekeeping a gateway does for its replica, and which as the owner of the shard alone."""

import asyncio
from typing import Final

from gateway.coordination.clock import ClockWatch
from gateway.coordination.free_space import FreeSpace
from gateway.coordination.store_clock import LOOK_S, StoreClock
from gateway.coordination.store_quota import MEASURE_S, StoreQuota
from gateway.housekeeping.checkpoint import Checkpointer
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.housekeeper import TICK_S, Housekeeper
from gateway.housekeeping.producers import ProducerRelief
from gateway.housekeeping.retention import Retention

FULL_S: Final = 2.0
FULL_RETENTION_S: Final = 30.0
"""How often retention is checked on a full disk, if `log.retention.check.interval.ms` is not shorter: an
operator who has set a shorter one waits for it."""
MIN_HELD_BYTES: Final = 256 * 1024 * 1024
HELD_A_SNAPSHOT: Final = 4
"""Dead log files wait until they have this, or this multiple of a snapshot: then one is written so that the
journal can be pruned past them."""
SNAPSHOT_S = 5.0
"""How often it is looked whether a snapshot is due."""
CLOCK_S: Final = 5.0
CROWDED_PRODUCERS_S: Final = 1.0


def replica_steps(
    checkpointer: Checkpointer,
    watch: ClockWatch,
    space: FreeSpace,
    quota: StoreQuota | None = None,
    store_clock: StoreClock | None = None,
) -> Housekeeper:
    """On a full disk no image is written, since a restart needs none."""

    async def write_image() -> None:
        if not space.is_full:
            await checkpointer.write_image()

    async def check_clock() -> None:
        watch.check()

    housekeeper = Housekeeper()
    housekeeper.add("image", 5.0, write_image)
    housekeeper.add("clock", CLOCK_S, check_clock)
    if quota is not None:
        housekeeper.add("quota", MEASURE_S, quota.measure)
    if store_clock is not None:
        housekeeper.add("store clock", LOOK_S, store_clock.look)
    return housekeeper


def owner_steps(
    checkpointer: Checkpointer,
    garbage: GarbageCollector,
    retention: Retention,
    grace_ms: int,
    retention_check_ms: int,
    space: FreeSpace | None = None,
) -> Housekeeper:
    """On a full disk a snapshot, after which the journal is pruned, is written if it fits."""
    disk = space or FreeSpace(())

    async def apply_retention_if_full() -> None:
        if disk.is_full:
            await retention.apply()

    housekeeper = Housekeeper()
    now, sweep_s = asyncio.get_running_loop().time, min(60.0, grace_ms / 4_000)
    housekeeper.add("drain", TICK_S, lambda: garbage.drain(now), first_s=0.0)
    housekeeper.add("retention", retention_check_ms / 1000, retention.apply)
    housekeeper.add("more retention", TICK_S, retention.go_on)
    housekeeper.add("retention on a full disk", FULL_RETENTION_S, apply_retention_if_full)
    housekeeper.add("snapshot", SNAPSHOT_S, lambda: snapshot_if_due(checkpointer, garbage, disk))
    housekeeper.add("sweep", sweep_s, lambda: garbage.sweep(now))
    housekeeper.add("full disk", FULL_S, lambda: garbage.sweep_if_full(now))
    housekeeper.add("producers", 600.0, lambda: garbage.expire_producers(now))
    return housekeeper


async def snapshot_if_due(checkpointer: Checkpointer, garbage: GarbageCollector, disk: FreeSpace) -> None:
    """Also if garbage waits for one. The flags of the last sweep are taken back until the next."""
    # The image is written first, and may grow by the same size.
    if disk.spares(2 * checkpointer.snapshot_bytes):
        least = 1 if disk.is_full else max(MIN_HELD_BYTES, HELD_A_SNAPSHOT * checkpointer.snapshot_bytes)
        is_wanted = garbage.waits_for_snapshot or garbage.held_bytes >= least
        await checkpointer.snapshot_if_due(is_wanted=is_wanted)
        garbage.waits_for_snapshot = False
        garbage.held_bytes = 0


class OwnerHousekeeping:
    """The owner's steps as a part of the owner scope."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        garbage: GarbageCollector,
        relief: ProducerRelief,
        housekeeper: Housekeeper,
    ) -> None:
        """`housekeeper` has all steps but that of `relief`."""
        self._checkpointer = checkpointer
        self._garbage = garbage
        self._relief = relief
        self._housekeeper = housekeeper
        self._housekeeper.add("crowded producers", CROWDED_PRODUCERS_S, relief.relieve)
        self._task: asyncio.Task[None] | None = None

    async def begin_epoch(self) -> None:
        await self._checkpointer.start()
        self._garbage.begin_epoch()
        self._relief.begin_epoch()
        self._task = asyncio.create_task(self._housekeeper.run(), name="owner-housekeeping")

    async def end_epoch(self) -> None:
        """The step under way ends where it is: the next owner does all of this."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
