"""What fetches hold while they read and until their answers are sent; and what they say of damage."""

import asyncio
import gc
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from gateway.fetch.budget import FetchBudget
from gateway.fetch.room import FetchOptions
from gateway.fetch.stream import BatchStream
from tests.support.reading import batch_of, reading_world, records_of, with_base

A, B = batch_of(b"a"), batch_of(b"b1", b"b2")
Releases = list[Callable[[], None]]


async def test_an_answer_takes_its_share_of_the_budget_until_it_is_sent() -> None:
    options = FetchOptions(in_flight_bytes=len(A) + len(B) // 2, ledger_wait_s=0.05)
    async with reading_world(options, cache_bytes=0) as world:
        await world.create()
        await world.produce(A)
        await world.produce(B)
        unsent: Releases = []
        budget = world.fetch_room.budget
        first = await world.one("t", 0, 0, len(A), hold=unsent.append)
        assert records_of(first) == with_base(A, 0)
        assert budget.held_bytes == len(A) and not budget.stuck_since
        second = asyncio.create_task(world.one("t", 0, 1, max_wait_ms=60_000, hold=unsent.append))
        await asyncio.sleep(0.01)
        assert not second.done() and budget.stuck_since > 0
        unsent.pop()()
        assert records_of(await second) == with_base(B, 1)
        assert budget.held_bytes == len(B)
        unsent.pop()()
        assert budget.held_bytes == 0 and not unsent


async def test_what_is_held_for_an_answer_is_not_what_was_read_beside_it() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A, B)
        unsent: Releases = []
        await world.one("t", 0, 0, hold=unsent.append)
        assert unsent and not [thing for thing in gc.get_objects() if isinstance(thing, BatchStream)]


async def test_an_answer_takes_all_that_its_views_were_cut_from() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A, B)
        unsent: Releases = []
        answered = await world.one("t", 0, 0, len(A) + len(B) - 1, hold=unsent.append)
        assert records_of(answered) == with_base(A, 0)
        # They were read in one piece.
        assert world.fetch_room.budget.held_bytes == len(A) + len(B)
        unsent.pop()()
        assert world.fetch_room.budget.held_bytes == 0 and not unsent


async def test_answers_without_records_and_fetches_without_answer_hold_nothing() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A, B)
        unsent: Releases = []
        await world.one("t", 0, 3, hold=unsent.append)
        await world.one("nope", 0, 0, hold=unsent.append)
        reading = asyncio.create_task(world.one("t", 0, 0, hold=unsent.append))
        await asyncio.sleep(0)
        assert world.fetch_room.budget.held_bytes
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert reading.cancelled()
        assert world.fetch_room.budget.held_bytes == 0 and not unsent


async def test_who_gets_nothing_starves_however_short_each_wait_was() -> None:
    loop = asyncio.get_running_loop()
    budget = FetchBudget(10)
    share = await budget.acquire(10, loop.time() + 1)
    began = loop.time()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await budget.acquire(5, loop.time() + 0.02)
        assert budget.stuck_since == 0.0
    waiting = asyncio.create_task(budget.acquire(5, loop.time() + 10))
    await asyncio.sleep(0.02)
    assert began <= budget.stuck_since <= began + 0.02
    behind = asyncio.create_task(budget.acquire(5, loop.time() + 10))
    await asyncio.sleep(0)
    share.give_back(keep=5)
    assert (await waiting).size == 5
    assert budget.stuck_since >= began + 0.06
    share.give_back()
    assert (await behind).size == 5
    assert budget.stuck_since == 0.0


async def test_damage_is_written_once_a_minute_for_each_partition_and_counted_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("gateway.telemetry.logs.time.monotonic", lambda: now)
    async with reading_world(cache_bytes=0) as world:
        await world.create(partitions=2)
        for partition in range(2):
            await world.produce(A, partition=partition)
            run = world.log(partition=partition).find(0, 1)[0]
            locator = world.shard.state.files.locator(run.object_number)
            world.segments.overwrite(locator, run.start + 16, b"\x07")
        with capture_logs() as events:
            for _ in range(5):
                await world.fetch(("t", 0, 0), ("t", 1, 0))
            now += 61
            await world.one("t", 0, 0)
        written = [(event["event"], event["partition"], event.get("left_out")) for event in events]
        assert written == [
            ("fetch.batch_damaged", 0, None),
            ("fetch.batch_damaged", 1, None),
            ("fetch.batch_damaged", 0, 4),
        ]
        assert len(world.alarms) == 11
