"""Batches are opened in slices, with a fair share for each connection and topic."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.scheduling.batch_opening import BatchOpener, NotWanted
from gateway.scheduling.slices import Owner

HEAVY_S = 0.15


class Burning:
    """A work that takes this CPU time, in a thread."""

    def __init__(self, name: str, log: list[str], seconds: float = 0.0, turns_long: bool = False) -> None:
        self.name = name
        self.log = log
        self.left = seconds
        self.is_long = False
        self.turns_long = turns_long
        self.released = 0
        self.steps = 0

    def unpack(self) -> bool:
        if self.turns_long and not self.is_long:
            self.is_long = True
            return False
        return True

    def step(self, is_over: Callable[[], bool]) -> bool:
        self.steps += 1
        while self.left > 0:
            began = time.thread_time()
            while time.thread_time() - began < 0.001:
                pass
            self.left -= 0.001
            if is_over():
                break
        if self.left <= 0:
            self.log.append(self.name)
        return self.left <= 0

    def release(self) -> None:
        self.released += 1


class Broken(Burning):
    def step(self, is_over: Callable[[], bool]) -> bool:
        raise ValueError("no records")


def owner(number: int, host: str = "10.0.0.1") -> Owner:
    return Owner(number, host)


@pytest.fixture
async def opener() -> AsyncIterator[BatchOpener]:
    opener = BatchOpener()
    yield opener
    opener.close()


async def test_works_that_nobody_wants_any_more_are_let_go_while_others_have_their_slices(
    opener: BatchOpener,
) -> None:
    log: list[str] = []
    wanted = [True] * 6
    busy = [
        asyncio.create_task(opener.run(owner(9 + i), "t", Burning(f"busy {i}", log, HEAVY_S)))
        for i in range(2)
    ]
    await asyncio.sleep(0)

    def begin(i: int, number: int, topic: str) -> "asyncio.Task[None]":
        work = Burning(f"work {i}", log)
        return asyncio.create_task(opener.run(owner(number), topic, work, lambda: wanted[i]))

    # Of the first connection all go, of the second every other one, in two topics.
    tasks = [begin(0, 1, "t"), begin(1, 1, "u")]
    tasks += [begin(2, 2, "t"), begin(3, 2, "t"), begin(4, 2, "u"), begin(5, 2, "t")]
    await asyncio.sleep(0)
    for i in (0, 1, 2, 4):
        wanted[i] = False
    opener.drop_unwanted()
    ended = await asyncio.wait_for(
        asyncio.gather(*(tasks[i] for i in (0, 1, 2, 4)), return_exceptions=True), 5
    )
    assert [type(each) for each in ended] == [NotWanted] * 4
    assert not {"work 0", "work 1", "work 2", "work 4"} & set(log)
    again = begin(0, 1, "t")
    wanted[0] = True
    await asyncio.gather(tasks[3], tasks[5], again, *busy)
    assert sorted(log) == ["busy 0", "busy 1", "work 0", "work 3", "work 5"]
    assert log.index("work 3") < log.index("work 5")
    assert opener.waiting == 0


@pytest.mark.serial
async def test_who_comes_later_with_little_is_done_long_before_those_with_much(opener: BatchOpener) -> None:
    log: list[str] = []
    heavy = [Burning(f"heavy {i}", log, HEAVY_S) for i in range(8)]
    tasks = [asyncio.create_task(opener.run(owner(i), "t", work)) for i, work in enumerate(heavy)]
    await asyncio.sleep(0.05)
    before = sum(work.steps for work in heavy)
    await opener.run(owner(99), "t", Burning("other", log, 0.002))
    # At most a slice of each other.
    assert sum(work.steps for work in heavy) - before <= 8
    assert log == ["other"]
    assert max(work.steps for work in heavy) <= min(work.steps for work in heavy) + 2
    await asyncio.gather(*tasks)
    assert opener.waiting == 0


async def test_a_connection_with_many_works_gets_no_more_than_one_with_a_few(opener: BatchOpener) -> None:
    log: list[str] = []
    many = [asyncio.create_task(opener.run(owner(1), f"t{i}", Burning("many", log, 0.03))) for i in range(20)]
    few = [asyncio.create_task(opener.run(owner(2), "u", Burning("few", log, 0.03))) for _ in range(3)]
    await asyncio.gather(*few)
    assert log.count("many") <= 6
    await asyncio.gather(*many)


async def test_a_hundred_connections_of_one_address_weigh_as_much_as_one_of_another(
    opener: BatchOpener,
) -> None:
    log: list[str] = []
    many = [asyncio.create_task(opener.run(owner(i), "t", Burning("many", log, 0.03))) for i in range(100)]
    await asyncio.sleep(0.05)
    for _ in range(3):
        await opener.run(owner(1000, "10.7.0.2"), "t", Burning("one", log, 0.03))
    assert log.count("one") == 3 and log.count("many") <= 6
    for task in many:
        task.cancel()


async def test_the_topics_of_a_connection_take_turns_and_each_keeps_its_order(opener: BatchOpener) -> None:
    log: list[str] = []
    first = [asyncio.create_task(opener.run(owner(1), i, Burning("first", log, 0.02))) for i in range(2)]
    await asyncio.sleep(0)
    works = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]
    await asyncio.gather(*[opener.run(owner(1), topic, Burning(name, log)) for topic, name in works])
    await asyncio.gather(*first)
    taken = [name for name in log if name != "first"]
    # Two at a time, so that neighbours may change places.
    assert {*taken[:2]} == {"a1", "b1"} and {*taken[2:4]} == {"a2", "b2"}


async def test_what_was_unpacked_is_released_only_when_another_is_next(opener: BatchOpener) -> None:
    log: list[str] = []
    alone = Burning("alone", log, 0.05)
    await opener.run(owner(1), "t", alone)
    assert alone.steps > 1 and alone.released == 0
    several = [Burning("one of several", log, 0.05) for _ in range(4)]
    await asyncio.gather(*[opener.run(owner(i), "t", work) for i, work in enumerate(several)])
    assert sum(work.released for work in several) >= 4


@pytest.mark.serial
async def test_a_work_that_shows_to_be_long_holds_up_no_short_one(opener: BatchOpener) -> None:
    log: list[str] = []
    long = [
        asyncio.create_task(opener.run(owner(i), "t", Burning("long", log, 0.2, turns_long=True)))
        for i in range(4)
    ]
    await asyncio.sleep(0.02)
    for i in range(20):
        await opener.run(owner(50 + i), "t", Burning("short", log, 0.001))
    assert log.count("short") == 20 and log.count("long") < 4
    await asyncio.gather(*long)


async def test_the_work_of_a_lost_client_is_dropped_before_its_next_slice(
    opener: BatchOpener,
) -> None:
    log: list[str] = []
    is_here = True
    works = [Burning(f"{i}", log, 0.2) for i in range(4)]
    tasks = [
        asyncio.create_task(opener.run(owner(i), "t", work, lambda: is_here)) for i, work in enumerate(works)
    ]
    await asyncio.sleep(0.03)
    is_here = False
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [NotWanted] * 4
    assert log == [] and opener.waiting == 0


async def test_a_cancelled_work_ends_with_its_slice_and_the_next_is_done(opener: BatchOpener) -> None:
    log: list[str] = []
    first = Burning("first", log, 5.0)
    task = asyncio.create_task(opener.run(owner(1), "t", first))
    await asyncio.sleep(0.03)
    task.cancel()
    await opener.run(owner(1), "t", Burning("second", log))
    assert log == ["second"]
    await asyncio.sleep(0.2)
    assert opener.waiting == 0
    steps = first.steps
    await asyncio.sleep(0.03)
    assert first.steps == steps


async def test_a_work_that_fails_fails_alone(opener: BatchOpener) -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="no records"):
        await opener.run(owner(1), "t", Broken("broken", log))
    await opener.run(owner(1), "t", Burning("next", log))
    assert log == ["next"]


async def test_work_that_waits_when_it_closes_is_cancelled() -> None:
    opener = BatchOpener()
    tasks = [asyncio.create_task(opener.run(owner(i), "t", Burning("x", [], 0.3))) for i in range(3)]
    await asyncio.sleep(0.01)
    opener.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    with pytest.raises(asyncio.CancelledError):
        await opener.run(owner(1), "t", Burning("late", []))
