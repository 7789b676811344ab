"""Invariant 6: a crash between store and commit leaves an orphan that goes after the grace; live objects
never go, however slow their writer was."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ledger.partitions.requests import CommitFile, StaleObject
from ledger.topics.requests import Created, CreateTopic, DeleteTopic
from ledger.types import DraftBatch, Placement
from tests.support.embedded import BEGUN_MS, GRACE_MS, WAIT_S, Client, Clock, Embedded
from tests.support.faulty import Fault, Faults
from tests.support.journalled import batches_in_order, topic_id


@pytest.fixture
async def host(scratch: Path) -> AsyncIterator[Embedded]:
    async with Embedded(scratch, Clock(), roll_age_ms=1) as opened:
        assert isinstance(await opened.ask(CreateTopic("t", topic_id(1), 1, {})), Created)
        yield opened


async def orphan_of(host: Embedded) -> Placement:
    """Stored as the room stores it, and never committed."""
    batch = Client().batch("t", 0)
    return await host.segments.write([DraftBatch(topic_id(1), 0, batch, 2)], host.clock.now_ms)


async def test_an_orphan_goes_once_the_grace_has_passed_and_not_before(host: Embedded) -> None:
    client = Client()
    await host.send("t", 0, client.batch("t", 0))
    host.clock.now_ms += 5
    orphan = (await orphan_of(host)).locator
    for passed_ms in (0, 1, GRACE_MS // 2, GRACE_MS):
        host.clock.now_ms = BEGUN_MS + 5 + passed_ms
        await host.sweep()
        assert orphan in await host.objects()
    host.clock.now_ms += 1
    await host.sweep()
    live = {stored.locator for stored in host.shard.state.objects.by_number.values()}
    assert await host.objects() == live and orphan not in live
    assert len(await host.read("t")) == 1


async def test_an_orphan_of_a_crash_goes_after_the_restart(scratch: Path) -> None:
    clock = Clock()
    async with Embedded(scratch, clock) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        orphan = (await orphan_of(host)).locator
    async with Embedded(scratch, clock) as host:
        await host.sweep()
        assert await host.objects() == {orphan}
        clock.now_ms += GRACE_MS + 1
        await host.sweep()
        assert await host.objects() == set()


async def test_an_object_below_the_floor_is_committed_no_more(host: Embedded) -> None:
    """So a writer that slept through the grace cannot come back for an object that is deleted."""
    placed = await orphan_of(host)
    host.clock.now_ms += GRACE_MS + 1
    await host.sweep()
    late = CommitFile(placed.locator, placed.object_bytes, batches_in_order(topic_id(1), 0, [2]))
    assert await host.ask(late) == StaleObject()
    assert host.log("t").high_watermark == 0


async def test_a_writer_slower_than_the_grace_stores_its_draft_again(
    host: Embedded,
) -> None:
    write = host.segments.write

    async def slow_once(batches: Sequence[DraftBatch], created_ms: int, feature_level: int = 1) -> Placement:
        placed = await write(batches, created_ms, feature_level)
        host.segments.write = write  # type: ignore[method-assign]
        host.clock.now_ms += 2 * GRACE_MS
        await host.sweep()
        await host.sweep()
        assert placed.locator not in await host.objects()
        return placed

    host.segments.write = slow_once  # type: ignore[method-assign]
    batch = Client().batch("t", 0)
    assert await host.send("t", 0, batch) == [0]
    assert [stored.data for stored in await host.read("t")] == [batch]


async def test_live_objects_stay_however_old_and_however_often_is_swept(host: Embedded) -> None:
    client = Client()
    for number in range(5):
        host.clock.now_ms += GRACE_MS
        assert await host.send("t", 0, client.batch("t", 0)) == [2 * number]
        await orphan_of(host)
        await host.sweep()
    host.clock.now_ms += 100 * GRACE_MS
    for _ in range(3):
        await host.sweep()
    assert len(await host.objects()) == 5
    assert [stored.base for stored in await host.read("t")] == [0, 2, 4, 6, 8]


async def test_dead_objects_stay_for_the_grace_after_their_last_run_went(host: Embedded) -> None:
    await host.send("t", 0, Client().batch("t", 0))
    (dead,) = await host.objects()
    host.clock.now_ms += 10 * GRACE_MS
    await host.ask(DeleteTopic(topic_id(1)))
    await host.sweep()
    host.clock.now_ms += GRACE_MS - 1
    await host.sweep()
    assert await host.objects() == {dead}  # a reader may still be at it
    host.clock.now_ms += 1
    await host.sweep()
    assert await host.objects() == set()
    assert not host.shard.state.objects.by_number


async def test_a_clock_that_goes_back_makes_no_key_below_the_floor(scratch: Path) -> None:
    clock = Clock(BEGUN_MS + 10 * GRACE_MS)
    async with Embedded(scratch, clock) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        await host.sweep()
    clock.now_ms = BEGUN_MS
    async with Embedded(scratch, clock) as host:
        client = Client()
        assert await host.send("t", 0, client.batch("t", 0)) == [0]
        await host.sweep()
        assert await host.send("t", 0, client.batch("t", 0)) == [2]
        assert len(await host.objects()) == 1 and len(await host.read("t")) == 2


async def test_orphans_go_although_the_clock_went_back(scratch: Path) -> None:
    clock = Clock(BEGUN_MS + 10 * GRACE_MS)
    async with Embedded(scratch, clock) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        await orphan_of(host)
        clock.now_ms += GRACE_MS + 1
        await host.ask(CreateTopic("u", topic_id(2), 1, {}))
        clock.now_ms = BEGUN_MS
        await host.sweep()
        assert await host.objects() == set()


async def test_sweeping_while_batches_come_in_deletes_nothing_that_is_live(scratch: Path) -> None:
    clock, client = Clock(), Client()
    async with Embedded(scratch, clock) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        produced = 0

        async def produce() -> None:
            nonlocal produced
            for _ in range(40):
                clock.now_ms += GRACE_MS // 3
                results = await host.send("t", 0, client.batch("t", 0), client.batch("t", 0))
                produced += sum(isinstance(result, int) for result in results)

        producing = asyncio.create_task(produce())
        async with asyncio.timeout(WAIT_S):
            while not producing.done():
                await host.sweep()
                await asyncio.sleep(0)
            await producing
        assert produced == 80 and len(await host.read("t")) == 80


CALLS_OF_A_SWEEP = 2
"""To delete one object: with all that are due, and then once more by itself."""


@pytest.mark.parametrize("times", [1, CALLS_OF_A_SWEEP])
@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.LATE])
async def test_a_deletion_that_failed_is_done_again(scratch: Path, fault: Fault, times: int) -> None:
    faults, clock = Faults(1, fault, times=times, only=["segments.delete"]), Clock()
    async with Embedded(scratch, clock, faults) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        await host.send("t", 0, Client().batch("t", 0))
        await host.ask(DeleteTopic(topic_id(1)))
        await host.sweep()
        clock.now_ms += GRACE_MS + 1
        # One failure is made good by the same sweep; what it cannot delete waits for the next.
        await host.sweep()
        assert len(faults.failed) == times
        assert bool(host.shard.state.objects.garbage) == (times == CALLS_OF_A_SWEEP)
        await host.sweep()
        assert await host.objects() == set() and not host.shard.state.objects.garbage
