"""What fetches hold while they read and until their responses are sent; and how they report damage."""

import asyncio
import gc
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from gateway.fetch.budget import FetchBudget
from gateway.fetch.operation import FetchOptions
from gateway.fetch.stream import COPIED_BYTES, BatchStream
from tests.support.reading import batch_of, reading_world, records_of, with_base

A, B = batch_of(b"a"), batch_of(b"b1", b"b2")
Releases = list[Callable[[], None]]


async def test_a_response_holds_its_share_of_the_budget_until_it_is_sent() -> None:
    options = FetchOptions(in_flight_bytes=len(A) + len(B) // 2, ledger_wait_s=0.05)
    async with reading_world(options, cache_bytes=0) as world:
        await world.create()
        await world.produce(A)
        await world.produce(B)
        unsent: Releases = []
        budget = world.fetch_service.budget
        first = await world.one("t", 0, 0, len(A), unsent=unsent)
        assert records_of(first) == with_base(A, 0)
        assert budget.held_bytes == len(A) and not budget.stuck_since
        second = asyncio.create_task(world.one("t", 0, 1, max_wait_ms=60_000, unsent=unsent))
        await asyncio.sleep(0.01)
        assert not second.done() and budget.stuck_since > 0
        unsent.pop()()
        assert records_of(await second) == with_base(B, 1)
        assert budget.held_bytes == len(B)
        unsent.pop()()
        assert budget.held_bytes == 0 and not unsent


async def test_a_response_does_not_hold_what_was_read_next_to_it() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A, B)
        unsent: Releases = []
        await world.one("t", 0, 0, unsent=unsent)
        assert unsent and not [thing for thing in gc.get_objects() if isinstance(thing, BatchStream)]


async def test_a_response_is_charged_for_all_that_its_views_were_cut_from() -> None:
    first, second = batch_of(b"a" * COPIED_BYTES), batch_of(b"b" * COPIED_BYTES)
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(first, second)
        unsent: Releases = []
        most = len(first) + len(second) - 1
        part = await world.one("t", 0, 0, most, unsent=unsent)
        assert records_of(part) == with_base(first, 0)
        # They were read in one piece.
        assert world.fetch_service.budget.held_bytes == most
        unsent.pop()()
        assert world.fetch_service.budget.held_bytes == 0 and not unsent


async def test_responses_without_records_and_cancelled_fetches_hold_nothing() -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A, B)
        unsent: Releases = []
        await world.one("t", 0, 3, unsent=unsent)
        await world.one("nope", 0, 0, unsent=unsent)
        reading = asyncio.create_task(world.one("t", 0, 0, unsent=unsent))
        await asyncio.sleep(0)
        assert world.fetch_service.budget.held_bytes
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert reading.cancelled()
        assert world.fetch_service.budget.held_bytes == 0 and not unsent


async def test_fetches_that_get_nothing_starve_however_short_each_wait_was() -> None:
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
    later = asyncio.create_task(budget.acquire(5, loop.time() + 10))
    await asyncio.sleep(0)
    share.release(keep=5)
    assert (await waiting).size == 5
    assert budget.stuck_since >= began + 0.06
    share.release()
    assert (await later).size == 5
    assert budget.stuck_since == 0.0


async def test_damage_is_logged_once_a_minute_for_each_partition_and_always_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("gateway.telemetry.logs.time.monotonic", lambda: now)
    async with reading_world(cache_bytes=0) as world:
        await world.create(partitions=2)
        for partition in range(2):
            await world.produce(A, partition=partition)
            run = world.log(partition=partition).find(0, 1)[0]
            locator = world.shard.state.objects.locator(run.object_number)
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
