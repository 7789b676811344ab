"""Which fetch gets memory while others hold it or wait for it (`gateway.fetch.budget`)."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.fetch.budget import FAIR_FLOOR_BYTES, SMALL_BYTES, FetchBudget, Share
from gateway.fetch.operation import FetchOptions
from gateway.scheduling.slices import Owner
from tests.support.reading import MIB, batch_of, parts, reading_world, records_of, with_base

LARGE = 4 * MIB


class Queue:
    """Fetches that wait, and the order in which they are granted their bytes."""

    def __init__(self, max_bytes: int = 16 * MIB) -> None:
        self.budget = FetchBudget(max_bytes)
        self.granted: list[str] = []
        self.shares: dict[str, Share] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def request(self, name: str, size: int, connection: int, host: str = "127.0.0.1") -> None:
        """A fetch of a connection, until it waits or has its share."""
        self.tasks.append(asyncio.create_task(self._wait(name, size, Owner(connection, host))))
        await asyncio.sleep(0)

    async def _wait(self, name: str, size: int, owner: Owner) -> None:
        deadline = asyncio.get_running_loop().time() + 10
        self.shares[name] = await self.budget.acquire(size, deadline, owner)
        self.granted.append(name)

    async def fill(self, size: int = 10**9) -> Share:
        share = self.budget.acquire_now(size, Owner(1, "127.0.0.1"))
        assert share is not None
        return share

    async def drain(self) -> list[str]:
        """All are granted, one after another."""
        while len(self.granted) < len(self.tasks):
            await asyncio.sleep(0)
            self.shares.pop(self.granted[-1]).release()
        return self.granted


async def test_addresses_are_granted_in_rotation_however_many_connections_one_has() -> None:
    queue = Queue()
    all_of_it = await queue.fill()
    for i in range(5):
        await queue.request(f"many{i}", 10**9, 10 + i, "10.0.0.1")
    await queue.request("one", 10**9, 20, "10.0.0.2")
    # IPv6 addresses of one network are one.
    await queue.request("six0", 10**9, 30, "2001:db8::1")
    await queue.request("six1", 10**9, 31, "2001:db8::2")
    all_of_it.release()
    await asyncio.sleep(0)
    assert await queue.drain() == ["many0", "one", "six0", "many1", "six1", "many2", "many3", "many4"]


async def test_among_the_connections_of_an_address_small_fetches_pass_large_ones() -> None:
    queue = Queue()
    all_of_it = await queue.fill()
    for i in range(20):
        await queue.request(f"large{i}", 14 * MIB, 10 + i)
    await queue.request("medium", MIB, 40)
    all_of_it.release()
    await asyncio.sleep(0)
    assert (await queue.drain())[0] == "medium"


async def test_a_large_fetch_is_not_passed_for_ever() -> None:
    queue = Queue()
    holder = await queue.fill()
    await queue.request("large", 14 * MIB, 10)
    for i in range(5):
        await queue.request(f"small{i}", 8 * MIB, 11 + i)
        holder.release()
        await asyncio.sleep(0)
        holder = queue.shares[queue.granted[-1]]
    assert queue.granted[:3] == ["small0", "large", "small1"]


async def test_a_connection_that_holds_unsent_responses_waits_after_those_that_do_not() -> None:
    queue = Queue()
    reads_nothing = queue.budget.acquire_now(8 * MIB, Owner(2, "127.0.0.1"))
    rest = await queue.fill(6 * MIB)
    await queue.request("holds", MIB, 2)
    await queue.request("holds nothing", MIB, 3)
    rest.release(keep=5 * MIB)
    await asyncio.sleep(0)
    assert queue.granted == ["holds nothing"]
    assert reads_nothing is not None and reads_nothing.size == 8 * MIB


async def test_a_wait_that_ended_without_a_grant_keeps_its_place() -> None:
    queue = Queue()
    all_of_it = await queue.fill()
    await queue.request("other", 12 * MIB, 2)
    early = Owner(3, "127.0.0.1")
    with pytest.raises(TimeoutError):
        await queue.budget.acquire(10 * MIB, asyncio.get_running_loop().time() + 0.02, early)
    all_of_it.release()
    await asyncio.sleep(0)
    # "other" was granted its bytes; those that come now count from there, but for the one that waited.
    await queue.request("late", 8 * MIB, 4)
    await queue.request("waited before", 10 * MIB, 3)
    queue.shares["other"].release()
    await asyncio.sleep(0)
    assert queue.granted == ["other", "late"]
    queue = Queue()
    all_of_it = await queue.fill()
    await queue.request("first", 14 * MIB, 2)
    await queue.request("second", 14 * MIB, 5)
    with pytest.raises(TimeoutError):
        await queue.budget.acquire(10 * MIB, asyncio.get_running_loop().time() + 0.02, early)
    all_of_it.release()
    await asyncio.sleep(0)
    await queue.request("late", 9 * MIB, 4)
    await queue.request("waited before", 10 * MIB, 3)
    queue.shares["first"].release()
    await asyncio.sleep(0)
    assert queue.granted == ["first", "waited before"]


async def test_small_fetches_continue_while_large_ones_hold_and_wait_for_all_the_rest() -> None:
    queue = Queue()
    await queue.fill()
    await queue.request("large", LARGE, 2)
    small = queue.budget.acquire_now(SMALL_BYTES, Owner(3, "127.0.0.1"))
    assert small is not None and queue.granted == []
    # One that leaves its responses unread gets no more of the reserve, and cannot make its share a large one.
    assert queue.budget.acquire_now(1, Owner(3, "127.0.0.1")) is None
    assert not small.grow(SMALL_BYTES + 1)
    small.release()
    assert queue.budget.acquire_now(1, Owner(3, "127.0.0.1")) is not None


async def test_grants_to_small_fetches_do_not_hide_that_large_ones_starve() -> None:
    queue = Queue()
    await queue.fill()
    await queue.request("large", LARGE, 2)
    starving_since = queue.budget.stuck_since
    assert starving_since
    held = [queue.budget.acquire_now(SMALL_BYTES, Owner(i, "127.0.0.1")) for i in range(10, 42)]
    await queue.request("small", SMALL_BYTES, 50)
    await asyncio.sleep(0.01)
    assert held[0] is not None
    held[0].release()
    await asyncio.sleep(0)
    assert queue.granted == ["small"] and queue.budget.stuck_since == starving_since


async def test_the_reserve_is_bounded_and_granted_in_rotation_too() -> None:
    queue = Queue()
    all_of_it = await queue.fill()
    held = [queue.budget.acquire_now(SMALL_BYTES, Owner(i, "127.0.0.1")) for i in range(10, 42)]
    assert all(held) and queue.budget.held_bytes == 16 * MIB
    await queue.request("small", SMALL_BYTES, 50)
    assert queue.granted == []
    share = held[0]
    assert share is not None
    share.release()
    await asyncio.sleep(0)
    assert queue.granted == ["small"]
    await queue.request("another", SMALL_BYTES, 51)
    all_of_it.release()
    await asyncio.sleep(0)
    assert queue.granted == ["small", "another"]


async def test_waits_that_are_given_up_leave_the_queue() -> None:
    queue = Queue()
    all_of_it = await queue.fill()
    for i in range(300):
        await queue.request(str(i), LARGE, 10 + i)
    assert queue.budget.waiting_since
    for task in queue.tasks:
        task.cancel()
    await asyncio.gather(*queue.tasks, return_exceptions=True)
    assert queue.budget.waiting_since == queue.budget.stuck_since == 0.0
    all_of_it.release()
    assert queue.budget.held_bytes == 0
    assert queue.budget.acquire_now(14 * MIB) is not None


async def test_while_others_wait_a_fetch_gets_a_smaller_response_rather_than_none() -> None:
    large = batch_of(bytes(600_000))
    async with reading_world(FetchOptions(in_flight_bytes=16 * MIB), cache_bytes=0) as world:
        await world.create()
        for _ in range(8):
            await world.produce(large)
        budget = world.fetch_service.budget
        held = budget.acquire_now(10 * MIB)
        waiting = asyncio.create_task(budget.acquire(14 * MIB, world.soon(), Owner(9, "127.0.0.1")))
        reads = [
            asyncio.create_task(world.one("t", 0, 0, 8 * MIB, owner=Owner(i, "127.0.0.1"))) for i in (2, 3, 4)
        ]
        await asyncio.sleep(0.01)
        assert held is not None
        held.release()
        responses = [records_of(await read) for read in reads]
        assert all(response[: len(large)] == with_base(large, 0) for response in responses)
        # Those that came after others had to wait.
        assert [len(response) // len(large) for response in responses] == [8, 6, 4]
        (await waiting).release()
        assert budget.held_bytes == 0 and budget.fair_bytes >= FAIR_FLOOR_BYTES


async def test_a_batch_larger_than_planned_is_charged_whole() -> None:
    batch = batch_of(bytes(6 * MIB))
    async with reading_world(FetchOptions(in_flight_bytes=16 * MIB), cache_bytes=0) as world:
        await world.create()
        await world.produce(batch, batch)
        unsent: list[Callable[[], None]] = []
        budget = world.fetch_service.budget
        for i in range(2):
            # So small a maximum says nothing of the first batch, which is served whatever its size.
            part = await world.one("t", 0, 0, 1, unsent=unsent, owner=Owner(i, "127.0.0.1"))
            assert records_of(part) == with_base(batch, 0)
            assert budget.held_bytes >= (i + 1) * len(batch)
        third = asyncio.create_task(world.one("t", 0, 1, 1, unsent=unsent, owner=Owner(3, "127.0.0.1")))
        await asyncio.sleep(0.02)
        assert not third.done() and budget.waiting_since
        unsent.pop()()
        assert records_of(await third) == with_base(batch, 1)
        for release in unsent:
            release()
        assert budget.held_bytes == 0


async def test_a_large_first_batch_that_has_to_wait_is_served_alone_and_the_rest_later() -> None:
    batch, small = batch_of(bytes(6 * MIB)), batch_of(bytes(10_000))
    async with reading_world(FetchOptions(in_flight_bytes=16 * MIB), cache_bytes=0) as world:
        await world.create(partitions=2)
        await world.produce(batch)
        await world.produce(small, partition=1)
        budget = world.fetch_service.budget
        held = budget.acquire_now(13 * MIB)
        reading = asyncio.create_task(world.fetch(("t", 0, 0, 1), ("t", 1, 0), max_bytes=100_000))
        await asyncio.sleep(0.02)
        assert not reading.done() and held is not None
        held.release()
        first, second = parts(await reading)
        assert records_of(first) == with_base(batch, 0) and records_of(second) == b""
        assert second.error_code == 0 and second.high_watermark == 1
        assert budget.held_bytes == 0
