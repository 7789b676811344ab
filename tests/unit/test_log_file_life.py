"""The life of a log file as ledger and housekeeping see it: written, open while the log goes on in it, dead
once its runs, its grace and its entries are over, deleted, and not found by a reader that is late."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from adapters.blobs.memory import MemoryBlobs
from gateway.coordination.free_space import FreeSpace
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import Deaths, GarbageCollector
from gateway.housekeeping.steps import MIN_HELD_BYTES, snapshot_if_due
from ledger.errors import StoreUnavailable
from ledger.keys import is_log
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.state import ObjectState
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.types import Position
from tests.support.journalled import topic_id
from tests.support.placing import BEGUN_MS, PlacingWorld, batch_of

GRACE_MS = 60_000
MOST = 1 << 60
"""Journal bytes: no snapshot is due by itself."""


@dataclass
class Life:
    """A gateway with its housekeeping, whose clock is set by the test."""

    world: PlacingWorld = field(default_factory=PlacingWorld)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    elapsed_ms: int = 0

    async def open(self) -> "Life":
        await self.world.open()
        self.world.shard.replica.clock = self.now_ms
        self.checkpointer = Checkpointer(self.world.shard, None, self.blobs, SnapshotRule(MOST), self.now_ms)
        await self.checkpointer.start()
        self.garbage = GarbageCollector(
            self.world.shard,
            self.world.store,
            GRACE_MS,
            self.now_ms,
            20.0,
            elapsed=lambda: self.elapsed_ms,
        )
        return self

    def now_ms(self) -> int:
        return BEGUN_MS + self.elapsed_ms

    async def produce(self, size: int = 10) -> ObjectState:
        """Returns the object of the new batch."""
        base = await self.world.result(self.world.send(batch_of("x" * size)))
        assert isinstance(base, int)
        (run,) = self.world.log().find(base, 1)
        return self.world.shard.state.objects.by_number[run.object_number]

    async def delete_records(self) -> None:
        await self.world.shard.submit(DeleteRecords(topic_id(1), 0, -1))
        await self.world.shard.submit(DrainRuns(1000))

    async def snapshot(self) -> None:
        await self.checkpointer.snapshot()
        await self.checkpointer.prune()

    async def sweep(self) -> int:
        return (await self.garbage.sweep(loop_time)).objects

    async def sweep_orphans(self) -> int:
        return (await self.garbage.sweep(loop_time)).orphans

    async def prune_past_all(self) -> None:
        """The older of two snapshots is of the last entry."""
        for _ in range(2):
            await self.snapshot()

    async def files(self) -> list[str]:
        return [stored.locator for stored in await self.world.store.objects() if is_log(stored.locator)]


@pytest.fixture
async def life() -> AsyncIterator[Life]:
    made = await Life().open()
    yield made
    await made.world.close()


async def test_a_file_is_deleted_once_runs_grace_and_entries_are_over(life: Life) -> None:
    first = await life.produce()
    life.world.journal.roll()
    await life.delete_records()
    await life.produce()
    assert first.closed and await life.sweep() == 0
    life.elapsed_ms += GRACE_MS + 1
    assert await life.sweep() == 0, "its entries are still needed"
    assert life.garbage.held_bytes == first.size
    await life.snapshot()
    assert await life.sweep() == 0, "the older snapshot is before its entries"
    await life.snapshot()
    assert await life.sweep() == 1 and life.garbage.held_bytes == 0
    assert first.locator not in await life.files()
    assert await life.world.store.read([Position(first.locator, 5000, 10)]) == [None]
    assert first.locator not in life.world.shard.state.objects.by_locator


async def test_entries_that_are_over_free_nothing_during_the_grace(life: Life) -> None:
    first = await life.produce()
    life.world.journal.roll()
    await life.produce()
    await life.delete_records()
    await life.prune_past_all()
    assert await life.sweep() == 0
    life.elapsed_ms += GRACE_MS - 1
    assert await life.sweep() == 0
    life.elapsed_ms += 2
    assert await life.sweep() == 1 and first.locator not in await life.files()


async def test_the_file_that_is_written_stays_and_no_age_refuses_a_draft(life: Life) -> None:
    """Hours later, with an orphan floor above it and nothing live in it."""
    active = await life.produce()
    await life.delete_records()
    for _ in range(3):
        life.elapsed_ms += 10 * GRACE_MS
        await life.prune_past_all()
        await life.world.shard.submit(RaiseFloor(life.now_ms() - GRACE_MS))
        assert await life.sweep() == 0
    assert active.closed and active.locator in await life.files()
    assert life.world.shard.state.objects.floor_ms > active.created_ms
    again = await life.produce()
    assert again is active and not active.closed
    assert len(await life.world.stored()) == 1


async def test_a_file_that_died_again_has_its_grace_again(life: Life) -> None:
    """Readers may have planned between its two deaths, also if no sweep came then."""
    active = await life.produce()
    await life.delete_records()
    await life.sweep()
    life.elapsed_ms += GRACE_MS - 10
    assert await life.produce() is active
    await life.delete_records()
    life.world.journal.roll()
    await life.produce()
    await life.prune_past_all()
    life.elapsed_ms += 20
    assert await life.sweep() == 0
    life.elapsed_ms += GRACE_MS
    assert await life.sweep() == 1


def test_so_it_has_on_the_monotonic_clock_when_the_other_was_set_ahead() -> None:
    deaths, again_ms = Deaths(0), BEGUN_MS + 10 * GRACE_MS
    deaths.note({1: BEGUN_MS}, 1, 0)
    deaths.note({1: again_ms}, 2, GRACE_MS - 10)
    assert not deaths.is_grace_over(1, again_ms, GRACE_MS, GRACE_MS + 10)
    deaths.note({1: again_ms}, 3, GRACE_MS + 10)
    assert deaths.is_grace_over(1, again_ms, GRACE_MS, 2 * GRACE_MS - 10)


def test_a_file_that_died_again_is_not_dead_in_the_snapshots_after_its_first_death() -> None:
    deaths = Deaths(0)
    deaths.note({1: BEGUN_MS}, 5, 0)
    deaths.note({1: BEGUN_MS + 1}, 9, 0)
    assert not deaths.is_before(1, BEGUN_MS + 1, 8) and deaths.is_before(1, BEGUN_MS + 1, 9)


async def test_a_file_that_no_entry_names_is_an_orphan_once_it_is_not_held(life: Life) -> None:
    named = (await life.produce()).locator
    life.world.journal.roll()
    life.world.metadata.failing = [StoreUnavailable("the entry is not there")]
    await life.world.result(life.world.send(batch_of("lost")))
    (orphan,) = set(await life.files()) - {named}
    life.world.journal.roll()
    await life.produce()
    life.elapsed_ms += 2 * GRACE_MS
    assert await life.sweep_orphans() == 0
    await life.prune_past_all()
    life.elapsed_ms += 2 * GRACE_MS
    # Something has to raise the floor past it.
    await life.world.shard.submit(RaiseFloor(life.now_ms() - GRACE_MS))
    assert await life.sweep_orphans() == 1
    assert orphan not in await life.files() and named in await life.files()


async def test_held_orphans_raise_no_floor(life: Life) -> None:
    """An idle gateway writes no entries for them."""
    await life.produce()
    life.elapsed_ms += 100 * GRACE_MS
    applied = life.world.shard.state.applied
    for _ in range(3):
        await life.sweep()
        life.elapsed_ms += GRACE_MS
    assert life.world.shard.state.applied == applied and life.garbage.orphans_left == 0


async def test_a_file_that_gets_a_draft_in_the_same_entry_is_not_forgotten(life: Life) -> None:
    active = await life.produce()
    await life.delete_records()
    life.world.metadata.may_go.clear()
    blocking = life.world.send(batch_of("first"), partition=1)
    waiting = life.world.send(batch_of("second"))
    forgotten = life.world.shard.submit(ForgetObjects([active.number]))
    life.world.metadata.may_go.set()
    await life.world.results(blocking, waiting)
    await forgotten
    assert active.number in life.world.shard.state.objects.by_number
    assert len(await life.world.stored()) == 1


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Disk(FreeSpace):
    """It is full when the test says so."""

    full = False

    @property
    def is_full(self) -> bool:
        return self.full


@pytest.mark.parametrize("is_full", [True, False])
async def test_on_a_full_disk_what_the_journal_holds_is_let_go_also_without_entries(
    life: Life, is_full: bool
) -> None:
    first = await life.produce()
    life.world.journal.roll()
    await life.produce()
    await life.delete_records()
    disk = Disk(())
    disk.full = is_full
    await life.sweep()
    life.elapsed_ms += GRACE_MS + 1
    for _ in range(3):
        await life.sweep()
        await snapshot_if_due(life.checkpointer, life.garbage, disk)
    await life.sweep()
    assert (first.locator in await life.files()) is not is_full


async def test_many_dead_bytes_are_worth_a_snapshot(life: Life) -> None:
    await life.produce()
    life.garbage.held_bytes = MIN_HELD_BYTES - 1
    await snapshot_if_due(life.checkpointer, life.garbage, Disk(()))
    assert not life.checkpointer.snapshotted
    life.garbage.held_bytes = MIN_HELD_BYTES
    await snapshot_if_due(life.checkpointer, life.garbage, Disk(()))
    assert life.checkpointer.snapshotted == life.world.shard.state.applied
