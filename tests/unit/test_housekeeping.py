"""Housekeeping: when a snapshot is due, what a sweep deletes, and that a failing step stops no other."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.journals.metadata import entry_prefix
from gateway.coordination.free_space import FreeSpace
from gateway.coordination.owner_scope import OwnerScope
from gateway.housekeeping import housekeeper as housekeeper_module
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import FULL_GRACE_MS, PRODUCER_EXPIRATION_MS, GarbageCollector
from gateway.housekeeping.housekeeper import Housekeeper
from gateway.housekeeping.producers import ProducerRelief
from gateway.housekeeping.retention import Retention
from gateway.housekeeping.steps import OwnerHousekeeping, owner_steps
from ledger.errors import StoreError, StoreUnavailable
from ledger.formats.snapshot import decode_snapshot
from ledger.image import all_rows, restore
from ledger.objects.requests import RaiseFloor
from ledger.partitions.requests import DeleteRecords, ReserveProducerIds
from ledger.ports import Capabilities, PutOutcome, SegmentStore
from ledger.rows import digest
from ledger.state import Dirty
from ledger.swaps.requests import ReleasePin, Swapped, TakePin
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.types import DraftBatch, Placement
from tests.support.embedded import BEGUN_MS, GRACE_MS, WAIT_S, Client, Clock, Embedded
from tests.support.faulty import Fault, Faults
from tests.support.journalled import topic_id
from tests.support.swapping import JOB, swap_of

SLICE = 7
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class SlowWrites:
    """A segment store with another way to write."""

    def __init__(self, store: SegmentStore, write: Callable[..., Awaitable[Placement]]) -> None:
        self._store = store
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, Clock(), roll_age_ms=1) as opened:
        await opened.ask(CreateTopic("t", topic_id(1), 2, {}))
        yield opened


async def test_snapshots_are_taken_when_due_and_then_not_again_at_once(host: Embedded) -> None:
    host.checkpointer._rule = SnapshotRule(10_000)
    client = Client()
    keys: set[str] = set()
    for _ in range(200):
        await host.send("t", 0, client.batch("t", 0))
        await host.checkpointer.snapshot_if_due()
        keys |= {info.key for info in await host.blobs.list("snapshot/")}
    assert 2 <= len(keys) <= 5
    assert len(await host.blobs.list("snapshot/")) == 2
    assert len(await host.metadata.scan(entry_prefix(0))) < 200


async def test_a_restarted_gateway_knows_where_its_last_snapshot_was_taken(host: Embedded) -> None:
    await host.checkpointer.snapshot()
    applied = host.shard.state.applied
    rule = host.checkpointer._rule = SnapshotRule(1, 1)
    await host.checkpointer.start()
    assert rule.last_applied == applied


async def test_unreadable_runs_are_drained_slice_by_slice(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.housekeeping.draining.SLICE_RUNS", SLICE)
    client = Client()
    for _ in range(20):
        await host.send("t", 0, client.batch("t", 0))
    await host.ask(DeleteRecords(topic_id(1), 0, 30))
    before = host.shard.state.applied
    await host.garbage.drain(host.loop_time)
    # Fifteen runs lie below offset 30.
    assert (host.log("t").run_count, host.shard.state.applied - before) == (5, 3)
    assert not host.shard.state.draining
    assert [stored.base for stored in await host.read("t")] == [30, 32, 34, 36, 38]


async def test_producers_that_were_silent_for_a_day_are_forgotten(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.housekeeping.garbage.SLICE_PRODUCERS", 2)
    for producer_id in range(5):
        await host.send("t", 0, Client(producer_id).batch("t", 0))
    host.clock.now_ms = BEGUN_MS + PRODUCER_EXPIRATION_MS
    await host.garbage.expire_producers(host.loop_time)
    assert len(host.log("t").producers) == 5
    host.clock.now_ms += 1
    await host.send("t", 0, Client(9).batch("t", 0))
    await host.garbage.expire_producers(host.loop_time)
    assert list(host.log("t").producers) == [9]


async def test_without_an_image_nothing_is_remembered_for_it(host: Embedded) -> None:
    checkpointer = Checkpointer(host.shard, None, host.blobs, SnapshotRule(1), host.clock)
    for producer_id in range(5):
        await host.send("t", 0, Client(producer_id).batch("t", 0))
    await host.ask(CreateTopic("u", topic_id(2), 1, {}))
    state = host.shard.state
    assert state.dirty != Dirty() and host.log("t").unsaved_producers
    await checkpointer.write_image()
    assert state.dirty == Dirty() and not host.log("t").unsaved_producers
    assert not host.log("t").grown_chunks()
    # A snapshot has it all.
    key = await checkpointer.snapshot()
    restored = restore(decode_snapshot(await host.blobs.get(key), key).rows)
    assert digest(all_rows(restored)) == digest(all_rows(state))


async def test_dead_objects_are_deleted_slice_by_slice(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.housekeeping.garbage.SLICE_OBJECTS", 3)
    client = Client()
    for _ in range(10):
        host.clock.now_ms += 5
        await host.send("t", 0, client.batch("t", 0))
    assert len(await host.objects()) == 10
    await host.ask(DeleteTopic(topic_id(1)))
    await host.garbage.drain(host.loop_time)
    host.clock.now_ms += GRACE_MS + 1
    swept = await host.garbage.sweep(host.loop_time)
    assert (swept.objects, swept.orphans) == (10, 0)
    assert not await host.objects() and not host.shard.state.objects.by_number


async def test_where_the_store_cannot_delete_only_the_floor_rises(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.send("t", 0, Client().batch("t", 0))
    await host.ask(DeleteTopic(topic_id(1)))
    await host.garbage.drain(host.loop_time)
    host.clock.now_ms += GRACE_MS + 1
    monkeypatch.setattr(type(host.segments), "capabilities", Capabilities(False, False, True))
    swept = await host.garbage.sweep(host.loop_time)
    assert (swept.objects, swept.orphans) == (0, 0)
    assert len(await host.objects()) == 1
    assert host.shard.state.objects.floor_ms == BEGUN_MS + 1


async def dead_objects(host: Embedded, count: int) -> list[str]:
    """Garbage of a topic whose grace is over, with a floor above it."""
    for _ in range(count):
        host.clock.now_ms += 5
        await host.send("t", 0, Client().batch("t", 0))
    await host.ask(DeleteTopic(topic_id(1)))
    await host.garbage.drain(host.loop_time)
    host.clock.now_ms += GRACE_MS + 1
    await host.ask(RaiseFloor(host.clock.now_ms - GRACE_MS))
    return sorted(await host.objects())


async def test_what_is_due_is_deleted_also_while_the_journal_takes_nothing(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.housekeeping.garbage.SLICE_OBJECTS", 2)
    assert len(await dead_objects(host, 5)) == 5

    async def full(*_: object) -> PutOutcome:
        raise StoreUnavailable("no space is left on the device")

    with monkeypatch.context() as journal_is_full:
        journal_is_full.setattr(host.metadata, "put", full)
        with pytest.raises(StoreUnavailable):
            await host.garbage.sweep(host.loop_time)
    assert not await host.objects()
    assert len(host.shard.state.objects.garbage) == 5
    swept = await host.garbage.sweep(host.loop_time)
    assert (swept.objects, host.shard.state.objects.by_number) == (5, {})


@pytest.mark.parametrize("count", [1, 12])
async def test_objects_that_cannot_be_deleted_keep_no_other_and_raise_alarms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    alarms: list[str] = []
    async with Embedded(tmp_path, Clock(), roll_age_ms=1) as host:
        await host.ask(CreateTopic("t", topic_id(1), 2, {}))
        host.garbage._alarm = alarms.append
        stuck = set((await dead_objects(host, count + 2))[:count])
        unlink = Path.unlink

        def refuse(path: Path, missing_ok: bool = False) -> None:
            if any(str(path).endswith(locator) for locator in stuck):
                raise PermissionError(errno.EPERM, "not permitted")
            unlink(path, missing_ok)

        with monkeypatch.context() as damaged:
            damaged.setattr(Path, "unlink", refuse)
            swept = await host.garbage.sweep(host.loop_time)
        assert swept.objects == 2 and await host.objects() == stuck
        assert {state.locator for state in host.shard.state.objects.garbage.values()} == stuck
        assert set(alarms) == {"garbage.not_deleted"}
        assert (await host.garbage.sweep(host.loop_time)).objects == count
        assert not await host.objects()


async def test_a_sweep_ends_at_once_where_the_store_hangs(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.housekeeping.garbage.HANGING_S", -1.0)
    await dead_objects(host, 3)
    calls: list[Sequence[str]] = []

    async def hang(locators: Sequence[str]) -> None:
        calls.append(locators)
        raise StoreUnavailable("the disk did not answer in time")

    monkeypatch.setattr(host.segments, "delete", hang)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await host.garbage.sweep(host.loop_time)
    assert [len(locators) for locators in calls] == [3, 1]


async def test_a_clock_that_is_set_back_never_puts_the_floor_above_keys_to_come(host: Embedded) -> None:
    """Set back between the request for a floor and its decision, on a gateway that was idle until then."""
    host.clock.now_ms += 10 * GRACE_MS
    requested = RaiseFloor(host.clock.now_ms - GRACE_MS)
    host.clock.now_ms -= 5 * GRACE_MS
    await host.ask(requested)
    assert host.shard.state.objects.floor_ms == host.clock.now_ms
    assert await host.send("t", 0, Client().batch("t", 0)) == [0]


async def test_garbage_stays_for_the_whole_grace_unless_the_disk_is_full(host: Embedded) -> None:
    host.clock.now_ms += 5
    await host.send("t", 0, Client().batch("t", 0))
    await host.ask(DeleteTopic(topic_id(1)))
    await host.garbage.drain(host.loop_time)
    host.clock.now_ms += FULL_GRACE_MS + 1
    await host.garbage.sweep(host.loop_time)
    await host.garbage.sweep_if_full(host.loop_time)
    assert len(await host.objects()) == 1
    host.garbage._is_disk_full = lambda: True
    await host.garbage.sweep_if_full(host.loop_time)
    assert not await host.objects()


class Elapsed:
    """A clock that is never set."""

    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> int:
        return self.ms


def collector(host: Embedded, elapsed: Elapsed) -> GarbageCollector:
    return GarbageCollector(host.shard, host.segments, GRACE_MS, host.clock, WAIT_S, elapsed=elapsed)


async def test_dead_bytes_stay_for_the_whole_grace_although_the_clock_is_set_ahead(host: Embedded) -> None:
    elapsed = Elapsed()
    garbage = collector(host, elapsed)
    host.clock.now_ms += 5
    await host.send("t", 0, Client().batch("t", 0))
    await host.ask(DeleteTopic(topic_id(1)))
    await garbage.drain(host.loop_time)
    await garbage.sweep(host.loop_time)
    host.clock.now_ms += 23 * HOUR_MS
    left = []
    for passed_ms in (0, GRACE_MS - 1, 1):
        elapsed.ms += passed_ms
        await garbage.sweep(host.loop_time)
        left.append(len(await host.objects()))
    assert left == [1, 1, 0]


async def test_what_was_dead_before_a_restart_goes_by_the_time_of_its_entry(tmp_path: Path) -> None:
    """Else a gateway that is restarted more often than the grace takes would never free space."""
    clock = Clock()
    async with Embedded(tmp_path, clock) as first:
        await first.ask(CreateTopic("t", topic_id(1), 1, {}))
        clock.now_ms += 5
        await first.send("t", 0, Client().batch("t", 0))
        await first.ask(DeleteTopic(topic_id(1)))
        await first.garbage.drain(first.loop_time)
    clock.now_ms += GRACE_MS + 1
    async with Embedded(tmp_path, clock) as second:
        swept = await collector(second, Elapsed()).sweep(second.loop_time)
        assert swept.objects == 1


async def test_producers_stay_for_a_day_although_the_clock_is_set_ahead(host: Embedded) -> None:
    elapsed = Elapsed()
    garbage = collector(host, elapsed)
    await host.send("t", 0, Client(1).batch("t", 0))
    known = []
    steps = [(2 * MINUTE_MS, 0), (0, PRODUCER_EXPIRATION_MS - MINUTE_MS)]
    steps += [(PRODUCER_EXPIRATION_MS - 3 * MINUTE_MS, 0), (MINUTE_MS + 1, 0)]
    for passed_ms, set_ahead_ms in steps:
        elapsed.ms += passed_ms
        host.clock.now_ms += passed_ms + set_ahead_ms
        await garbage.expire_producers(host.loop_time)
        known.append(list(host.log("t").producers))
    assert known == [[1], [1], [1], []]


async def test_a_draft_under_way_while_a_full_disk_is_swept_is_stored_under_a_new_key(
    host: Embedded,
) -> None:
    """The floor of a full disk is young: what was written before it and is not committed is refused, kept out
    of the journal, and stored again."""
    produce_service = host.produce_service
    write, begun, held = host.segments.write, asyncio.Event(), asyncio.Event()
    written: list[str] = []

    async def slow(batches: Sequence[DraftBatch], created_ms: int, feature_level: int = 1) -> Placement:
        placement = await write(batches, created_ms, feature_level)
        written.append(placement.locator)
        if not begun.is_set():
            begun.set()
            await held.wait()
        return placement

    produce_service._segments = cast(SegmentStore, SlowWrites(host.segments, slow))
    client = Client()
    sending = asyncio.create_task(host.send("t", 0, client.batch("t", 0)))
    await begun.wait()
    host.clock.now_ms += FULL_GRACE_MS + 1
    host.garbage._is_disk_full = lambda: True
    await host.garbage.sweep_if_full(host.loop_time)
    held.set()
    assert await sending == [0]
    assert len(written) == 2 and written[1] in await host.objects()
    assert len(await host.read("t")) == 1


def always_due(
    host: Embedded, monkeypatch: pytest.MonkeyPatch, space: FreeSpace | None = None
) -> Housekeeper:
    """The owner's housekeeper, which does every step at every tick."""
    monkeypatch.setattr(housekeeper_module, "TICK_S", 0.001)
    retention = Retention(host.shard, lambda name, configs: configs[name], host.clock, WAIT_S)
    keeper = owner_steps(host.checkpointer, host.garbage, retention, GRACE_MS, 1, space)
    for step in keeper._steps:
        step.every_s = step.due_at = 0.0
    return keeper


async def test_a_full_disk_gets_no_snapshot_that_would_use_what_is_kept_for_deletions(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.checkpointer.snapshot()
    host.checkpointer._rule.entries = 1
    reserve, needed = 1 << 20, 2 * host.checkpointer.snapshot_bytes
    status = SimpleNamespace(f_frsize=1, f_bavail=0, f_blocks=1 << 40)
    space = FreeSpace([host.root], reserve, lambda _: cast(Any, status))
    keeper = always_due(host, monkeypatch, space)
    taken = []
    for status.f_bavail in (reserve // 2 + needed, reserve // 2 + needed + 1):
        space.measure()
        assert space.is_full and needed > 0
        before = host.checkpointer.snapshotted
        await host.send("t", 0, Client().batch("t", 0))
        for step in keeper._steps:
            if step.name == "snapshot":
                await keeper._step(step)
        taken.append(host.checkpointer.snapshotted > before)
    assert taken == [False, True]


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await reached():  # noqa: ASYNC110 - there is no event for a finished step
            await asyncio.sleep(0.002)


async def test_a_failed_step_stops_no_other_and_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of the first rounds of housekeeping fails."""
    faults = Faults(fail_at=30, fault=Fault.ERROR_BEFORE, times=25)
    async with Embedded(tmp_path, Clock(), faults, roll_age_ms=1) as host:
        configs = {"cleanup.policy": "delete", "retention.ms": "10", "retention.bytes": "-1"}
        await host.ask(CreateTopic("t", topic_id(1), 1, configs))
        await host.send("t", 0, Client().batch("t", 0))
        while len(faults.calls) < 29:
            await host.metadata.get("nothing")
        host.clock.now_ms += GRACE_MS + 1
        task = asyncio.create_task(always_due(host, monkeypatch).run())

        async def all_is_done() -> bool:
            host.clock.now_ms += GRACE_MS
            with suppress(StoreError):
                # So that there is something to be pruned.
                await host.ask(ReserveProducerIds(1))
            objects = host.shard.state.objects
            return len(faults.failed) == 25 and not objects.by_number and await host.shard.journal.start() > 0

        await until(all_is_done)
        assert host.log("t").log_start == host.log("t").high_watermark == 2
        assert not await host.objects()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert {call.store for call in faults.failed} >= {"metadata", "blobs"}


async def begun_scope(host: Embedded, keeper: Housekeeper) -> OwnerScope:
    relief = ProducerRelief(host.shard, set(), host.clock, WAIT_S)
    scope = OwnerScope(host.shard)
    scope.add(OwnerHousekeeping(host.checkpointer, host.garbage, relief, keeper))
    await scope.begin()
    return scope


async def test_the_owners_housekeeping_and_its_step_under_way_end_when_the_shard_is_lost(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune that went on would be that of a gateway that was replaced."""
    keeper = always_due(host, monkeypatch)
    began, ended = asyncio.Event(), asyncio.Event()

    async def hangs() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    keeper.add("hangs", 0.0, hangs)
    scope = await begun_scope(host, keeper)
    async with asyncio.timeout(WAIT_S):
        await began.wait()
        assert not scope.ended.is_set()
        host.shard.lost.set()
        await scope.ended.wait()
    assert ended.is_set()
    await scope.end()


async def test_the_owners_housekeeping_begins_again_with_another_epoch(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, runs = always_due(host, monkeypatch), asyncio.Queue[int]()

    async def count() -> None:
        runs.put_nowait(1)

    keeper.add("counts", 0.0, count)
    scope = await begun_scope(host, keeper)
    async with asyncio.timeout(WAIT_S):
        await runs.get()
        await scope.end()
        while not runs.empty():
            runs.get_nowait()
        await asyncio.sleep(0)
        assert runs.empty()
        await scope.begin()
        await runs.get()
        await scope.end()


async def test_a_merged_object_stays_while_the_newest_snapshot_names_it(host: Embedded) -> None:
    """A ledger that is restored from that snapshot finds the records there, and nowhere else."""
    await host.send("t", 0, Client().batch("t", 0), Client(2).batch("t", 0))
    await host.checkpointer.snapshot()
    log = host.log("t")
    await host.ask(TakePin(JOB))
    swapped = await host.ask(swap_of(log, list(log.runs()), host.shard.now_ms()))
    assert isinstance(swapped, Swapped)
    await host.ask(ReleasePin(JOB))
    checkpointer = Checkpointer(host.shard, host.image, host.blobs, SnapshotRule(1 << 40), host.clock)
    await checkpointer.start()
    garbage = GarbageCollector(
        host.shard, host.segments, GRACE_MS, host.clock, WAIT_S, snapshotted=lambda: checkpointer.snapshotted
    )
    host.clock.now_ms += 10 * GRACE_MS
    for _ in range(2):
        assert (await garbage.sweep(host.loop_time)).objects == 0
    assert garbage.waits_for_snapshot and await host.objects()
    await checkpointer.snapshot_if_due()
    assert (await garbage.sweep(host.loop_time)).objects == 0
    await checkpointer.snapshot_if_due(is_wanted=garbage.waits_for_snapshot)
    assert (await garbage.sweep(host.loop_time)).objects == 1
    assert not garbage.waits_for_snapshot and not await host.objects()


async def test_an_object_without_readable_records_waits_for_no_snapshot(host: Embedded) -> None:
    await host.send("t", 0, Client().batch("t", 0))
    await host.ask(DeleteTopic(topic_id(1)))
    await host.garbage.drain(host.loop_time)
    garbage = GarbageCollector(host.shard, host.segments, GRACE_MS, host.clock, WAIT_S, snapshotted=lambda: 0)
    host.clock.now_ms += 10 * GRACE_MS
    assert (await garbage.sweep(host.loop_time)).objects == 1
    assert not garbage.waits_for_snapshot
