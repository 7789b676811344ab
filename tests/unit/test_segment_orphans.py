"""Segments that no swap has named: deleted with their indexes below the orphan floor, and never before."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.housekeeping.garbage import SCAN_SLICE_S, SLICE_OBJECTS, GarbageCollector
from gateway.housekeeping.orphan_scans import AFTER_JOBS, SEGMENTS_SCAN_S, OrphanScans
from ledger.errors import StoreUnavailable
from ledger.keys import index_locator, segment_locator, settled_keys
from ledger.objects.state import DATA_STORE, Origin
from ledger.objects.uploads import ObjectKind
from ledger.types import DraftBatch, StoredObject, TopicId
from tests.support.embedded import Clock
from tests.support.shards import open_shard

TOPIC = TopicId(bytes(range(16)))
GRACE_MS = 60_000
MINUTE_MS = 60_000


def locator_of(clock: Clock, base: int = 0) -> str:
    return segment_locator(TOPIC, 0, base, clock.now_ms, os.urandom(10))


class World:
    """A shard, its garbage collector, and a store that a job writes segments to."""

    def __init__(self, is_far: bool) -> None:
        self.clock = Clock()
        self.blobs = MemoryBlobs()
        wal = MemorySegments()
        wal.capabilities = replace(wal.capabilities, overlapping=is_far)
        self.store = WalAndSegments(wal, SegmentBlobs(self.blobs))
        self.skew_s = 0.0

    async def start(self) -> "World":
        self.shard = await open_shard(MemoryMetadata(), MemoryBlobs(), None, 1, self.clock)
        self.garbage = GarbageCollector(self.shard, self.store, GRACE_MS, self.clock, 20.0)
        return self

    async def write(self, base: int = 0) -> str:
        locator = locator_of(self.clock, base)
        await self.store.write_segment(locator, [b"kfs"], b"index")
        return locator

    async def sweep_after(self, minutes: float) -> int:
        """Orphans that were deleted."""
        self.clock.now_ms += int(minutes * MINUTE_MS)
        self.skew_s += minutes * 60
        return (await self.garbage.sweep(self._loop_time())).orphans

    def _loop_time(self) -> Callable[[], float]:
        loop = asyncio.get_running_loop()
        return lambda: loop.time() + self.skew_s

    async def keys(self) -> list[str]:
        return [info.key for info in await self.blobs.list("")]


@pytest.fixture(params=[False, True], ids=["local", "far"])
async def world(request: pytest.FixtureRequest) -> World:
    return await World(request.param).start()


async def test_an_orphan_goes_with_its_index_when_the_grace_is_over(world: World) -> None:
    orphan, live = await world.write(1), await world.write(2)
    world.shard.state.objects.register(live, Origin(ObjectKind.SEGMENT, DATA_STORE, world.clock.now_ms, None))
    assert await world.sweep_after(0.5) == 0
    assert world.garbage.orphans_left == 1
    assert await world.sweep_after(1) == 1
    assert await world.keys() == [index_locator(live), live]
    assert world.garbage.orphans_left == 0
    assert orphan not in world.shard.state.objects.by_locator


async def test_an_index_that_a_dead_job_has_left_goes_too(world: World) -> None:
    lone = locator_of(world.clock)
    await world.blobs.put(index_locator(lone), [b"index"])
    assert await world.sweep_after(0.5) == 0
    # An idle gateway raises the floor for it.
    assert await world.sweep_after(1) == 1
    assert await world.keys() == []


async def test_orphans_of_both_kinds_are_found_whatever_their_order(world: World) -> None:
    for minute in range(3):
        await world.write(9 - minute)
        placed = await world.store.write([DraftBatch(TOPIC, 0, b"x", 1)], world.clock.now_ms)
        await world.store.abandon(placed.locator)
        world.clock.now_ms += MINUTE_MS // 4
    deleted = sum([await world.sweep_after(0.25) for _ in range(40)])
    assert deleted == 6 and await world.store.objects() == []


async def test_a_scan_that_takes_long_goes_on_at_the_next_sweep(world: World) -> None:
    locators = [locator_of(world.clock, base) for base in range(4 * SLICE_OBJECTS)]
    for locator in locators:
        await world.blobs.put(locator, [b"kfs"])
    real = world.store.objects

    async def slow(after: str = "", limit: int = 1000) -> list[StoredObject]:
        world.skew_s += SCAN_SLICE_S * 0.6
        return list(await real(after, limit))

    world.store.objects = slow  # type: ignore[method-assign]
    assert await world.sweep_after(0.5) == 0
    assert world.garbage.orphans_left == 0, "not known before the scan is over"
    deleted = [await world.sweep_after(1) for _ in range(6)]
    assert max(deleted) == 2 * SLICE_OBJECTS and sum(deleted) == len(locators)
    assert await world.keys() == []
    assert world.garbage.orphans_left == 0


async def test_a_scan_that_cannot_be_made_keeps_no_other_from_its_own() -> None:
    world = await World(is_far=True).start()
    real = world.store.objects

    async def failing(after: str = "", limit: int = 1000) -> list[StoredObject]:
        if after < AFTER_JOBS:
            raise StoreUnavailable("a key that this store does not take")
        return list(await real(after, limit))

    world.store.objects = failing  # type: ignore[method-assign]
    for _ in range(3):
        placed = await world.store.write([DraftBatch(TOPIC, 0, b"x", 1)], world.clock.now_ms)
        await world.store.abandon(placed.locator)
        for _ in range(4):
            with suppress(StoreUnavailable):
                await world.sweep_after(1)
    assert await real(AFTER_JOBS) == []


async def test_a_long_scan_of_segments_keeps_none_of_wal_objects_from_its_turn() -> None:
    world = await World(is_far=True).start()
    for base in range(20 * SLICE_OBJECTS):
        await world.blobs.put(locator_of(world.clock, base), [b"kfs"])
    real = world.store.objects

    async def slow(after: str = "", limit: int = 1000) -> list[StoredObject]:
        world.skew_s += SCAN_SLICE_S if after < AFTER_JOBS else 0
        return list(await real(after, limit))

    world.store.objects = slow  # type: ignore[method-assign]
    await world.sweep_after(0)
    placed = await world.store.write([DraftBatch(TOPIC, 0, b"x", 1)], world.clock.now_ms)
    await world.store.abandon(placed.locator)
    for _ in range(7):
        await world.sweep_after(2)
    assert await real(AFTER_JOBS) == []
    assert await real() != [], "that scan is not over"


async def test_another_epoch_begins_its_scans_anew() -> None:
    world = await World(is_far=True).start()
    listed: list[str] = []
    real = world.store.objects

    async def slow(after: str = "", limit: int = 1000) -> list[StoredObject]:
        listed.append(after)
        world.skew_s += SCAN_SLICE_S
        return list(await real(after, limit))

    for base in range(2 * SLICE_OBJECTS):
        await world.blobs.put(locator_of(world.clock, base), [b"kfs"])
    world.store.objects = slow  # type: ignore[method-assign]
    await world.sweep_after(0)
    world.garbage.begin_epoch()
    await world.sweep_after(0)
    assert [after for after in listed if after < AFTER_JOBS] == ["", ""]


async def test_a_scan_that_failed_is_made_again(world: World) -> None:
    await world.write()
    real, failures = world.store.objects, [StoreUnavailable("no")]

    async def failing(after: str = "", limit: int = 1000) -> list[StoredObject]:
        if failures:
            raise failures.pop()
        return list(await real(after, limit))

    world.store.objects = failing  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await world.sweep_after(2)
    assert sum([await world.sweep_after(0.1), await world.sweep_after(0.1)]) == 1


async def test_a_far_store_is_listed_for_segments_once_an_hour() -> None:
    world = await World(is_far=True).start()
    listed: list[str] = []
    real = world.store.objects

    async def counted(after: str = "", limit: int = 1000) -> list[StoredObject]:
        listed.append(after)
        return list(await real(after, limit))

    world.store.objects = counted  # type: ignore[method-assign]
    for minute in range(121):
        placed = await world.store.write([DraftBatch(TOPIC, 0, b"x", 1)], world.clock.now_ms)
        await world.store.abandon(placed.locator)
        await world.sweep_after(1 if minute else 0)
    assert sum(after < AFTER_JOBS for after in listed) == 1 + 120 * 60 // SEGMENTS_SCAN_S
    assert sum(after >= AFTER_JOBS for after in listed) > 100


def test_a_scan_of_segments_ends_where_wal_objects_begin() -> None:
    scans = OrphanScans(is_far=True)
    wal, segments = scans.scans(floor_ms=100, now_s=0.0)
    assert (wal.after, segments.after) == (AFTER_JOBS, "")
    mixed = [StoredObject("seg/a", 50, 1), StoredObject("wal/0/b", 60, 1)]
    assert segments.part_of(mixed) == mixed[:1] and segments.is_over
    assert segments.part_of([]) == []
    assert wal.part_of(mixed[1:]) == mixed[1:] and not wal.is_over


def test_segments_are_listed_again_when_the_floor_passes_one_that_was_left() -> None:
    scans = OrphanScans(is_far=True)
    wal, segments = scans.scans(floor_ms=100, now_s=0.0)
    page = [StoredObject("seg/a", 150, 1), StoredObject("seg/b", 120, 1)]
    segments.saw(page, page, frozenset())
    for scan in (wal, segments):
        scans.ended(scan)
    assert (scans.oldest_ms, scans.left) == (120, 2)
    assert len(scans.scans(floor_ms=120, now_s=60.0)) == 1
    assert len(scans.scans(floor_ms=121, now_s=120.0)) == 2


async def test_a_settled_ledger_that_nothing_names_goes_with_all_of_its_files(world: World) -> None:
    orphan, live, lone = (settled_keys(TOPIC, at, world.clock.now_ms, os.urandom(10)) for at in range(3))
    for keys in (orphan, live):
        await world.store.write_settled(keys.log_key, [b"log"], b"index", b"{}")
    await world.blobs.put(lone.index_key, [b"index"])
    origin = Origin(ObjectKind.SETTLED, DATA_STORE, world.clock.now_ms, None)
    world.shard.state.objects.register(live.log_key, origin)
    assert await world.sweep_after(0.5) == 0
    assert await world.sweep_after(1) == 2
    assert await world.keys() == sorted(live)
