"""Heavy requests share the event loop (`gateway.scheduling.slices`)."""

import asyncio
import itertools
import time
from collections.abc import Generator

import pytest

from gateway.scheduling.slices import CHECK_EVERY, SLICE_SECONDS, Owner, Slices, SliceScheduler
from gateway.wire.connection import CloseConnection


async def _run(scheduler: SliceScheduler, owner: Owner, slices: int, log: list[int]) -> None:
    for _ in range(slices):
        await scheduler.next_slice(owner)
        log.append(owner.connection_id)


async def test_an_iteration_of_the_loop_has_at_most_one_slice() -> None:
    scheduler, log, seen = SliceScheduler(), list[int](), list[int]()
    loop = asyncio.get_running_loop()

    def look() -> None:
        seen.append(len(log))
        if len(log) < 20:
            loop.call_soon(look)

    loop.call_soon(look)
    await asyncio.gather(*(_run(scheduler, Owner(i, f"host{i}"), 4, log) for i in range(5)))
    assert max(b - a for a, b in itertools.pairwise(seen)) == 1


async def test_an_address_with_many_connections_gets_as_many_slices_as_one_with_one() -> None:
    scheduler, log = SliceScheduler(), list[int]()
    many = [_run(scheduler, Owner(i, "many"), 10, log) for i in range(1, 10)]
    await asyncio.gather(*many, _run(scheduler, Owner(100, "one"), 10, log))
    assert log[:20].count(100) == 10
    assert {log[:20].count(i) for i in range(1, 10)} == {1, 2}


async def test_the_work_of_a_connection_that_left_is_dropped() -> None:
    scheduler, log = SliceScheduler(), list[int]()
    gone = asyncio.ensure_future(_run(scheduler, Owner(1, "host"), 5, log))
    other = asyncio.ensure_future(_run(scheduler, Owner(2, "host"), 5, log))
    await asyncio.sleep(0)
    assert scheduler.waiting == 2
    scheduler.drop(1)
    with pytest.raises(asyncio.CancelledError):
        await gone
    await other
    assert log == [2] * 5
    assert scheduler.waiting == 0


async def test_a_request_that_is_cancelled_keeps_no_other_waiting() -> None:
    scheduler, log = SliceScheduler(), list[int]()
    gone = asyncio.ensure_future(_run(scheduler, Owner(1, "host"), 5, log))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(_run(scheduler, Owner(2, "host"), 3, log), 60)
    assert log[-3:] == [2, 2, 2]


async def test_a_small_request_never_waits() -> None:
    slices = Slices(SliceScheduler(), Owner(1, "host"))
    assert not any(slices.is_due() for _ in range(CHECK_EVERY - 1))
    assert slices.weight == CHECK_EVERY - 1
    assert slices.is_due()


@pytest.mark.serial
async def test_a_heavy_request_lets_others_continue_between_its_elements() -> None:
    slices, longest, last = Slices(SliceScheduler(), Owner(1, "host")), 0.0, time.perf_counter()
    is_done = False

    async def probe() -> None:
        nonlocal longest, last
        while not is_done:
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0)

    probing = asyncio.ensure_future(probe())
    total = 0
    async for item in slices.paced(range(200_000)):
        total += len(str(item))
    is_done = True
    await probing
    assert total == 1_088_890
    assert slices.weight == 200_000
    assert longest < 5 * 5 * SLICE_SECONDS


async def test_a_generator_is_driven_to_its_value() -> None:
    def work() -> Generator[int, None, str]:
        for _ in range(10):
            yield 1000
        return "done"

    slices = Slices(SliceScheduler(), Owner(1, "host"))
    assert await slices.drive_heavy(work()) == "done"
    assert slices.weight == 10_000


async def test_heavy_requests_get_memory_round_robin_by_address() -> None:
    scheduler, log = SliceScheduler(max_bytes=100), list[str]()

    async def heavy(owner: Owner, size: int) -> None:
        slices = Slices(scheduler, owner)
        slices.bytes = size
        await slices.next_slice()
        assert scheduler.held_bytes <= 100
        log.append(owner.host)
        await slices.next_slice()
        slices.leave()

    many = [heavy(Owner(i, "many"), 60) for i in range(5)]
    await asyncio.gather(*many, heavy(Owner(9, "one"), 1000))
    assert log.index("one") <= 2
    assert scheduler.held_bytes == 0


async def test_a_request_that_gets_no_memory_in_time_closes_its_connection() -> None:
    scheduler, now = SliceScheduler(max_bytes=100), asyncio.get_running_loop().time()
    first, second = Slices(scheduler, Owner(1, "a")), Slices(scheduler, Owner(2, "b"), now + 0.05)
    await first.next_slice()
    with pytest.raises(CloseConnection):
        await second.next_slice()
    first.leave()
    assert scheduler.held_bytes == scheduler.waiting == 0


async def test_a_request_whose_deadline_has_passed_meanwhile_still_waits_for_memory_for_a_while() -> None:
    scheduler, now = SliceScheduler(max_bytes=100), asyncio.get_running_loop().time()
    holder, late = Slices(scheduler, Owner(1, "a")), Slices(scheduler, Owner(2, "b"), now - 1, 5.0)
    # Memory that is free is given whatever the deadline.
    await late.next_slice()
    late.leave()
    await holder.next_slice()
    waiting = asyncio.create_task(late.next_slice())
    await asyncio.sleep(0.05)
    holder.leave()
    await waiting
    late.leave()
    # But not for ever.
    await holder.next_slice()
    brief = Slices(scheduler, Owner(2, "b"), now - 1, 0.05)
    with pytest.raises(CloseConnection):
        await brief.next_slice()
    holder.leave()
    assert scheduler.held_bytes == scheduler.waiting == 0


async def test_a_slice_that_is_over_stays_over_until_the_next_one() -> None:
    slices = Slices(SliceScheduler(), Owner(1, "a"))
    assert not slices.is_due(CHECK_EVERY - 1)
    # A caller without a place to wait counts what it did; the next that has one waits.
    assert slices.is_due(10 * CHECK_EVERY)
    assert slices.is_due()
    assert slices.weight == 11 * CHECK_EVERY
    await slices.next_slice()
    assert not slices.is_due()
    assert slices.weight == 11 * CHECK_EVERY + 1
