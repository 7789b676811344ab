"""A sweep over very many dead objects lets other tasks run, and spares what they need by then."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from gateway.coordination.holds import hold_everything
from gateway.housekeeping.garbage import SLICE_DEAD, GarbageCollector
from gateway.housekeeping.holds import BackupHolds
from ledger.numbered import ByNumber
from ledger.objects.requests import RaiseFloor
from ledger.objects.state import ObjectState
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.embedded import GRACE_MS, WAIT_S, Client, Clock, Embedded
from tests.support.journalled import locator, topic_id
from tests.support.loop_time import longest_turn

MANY: Final = 200_000
MOST_S: Final = 0.020
TRIES: Final = 2


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, Clock(), roll_age_ms=1) as opened:
        yield opened


class Collector(GarbageCollector):
    """Of a gateway with backups and a monotonic clock."""

    def __init__(self, host: Embedded, is_being_copied: Callable[[], bool] = lambda: False) -> None:
        super().__init__(
            host.shard,
            host.segments,
            GRACE_MS,
            host.clock,
            WAIT_S,
            elapsed=host.clock,
            holds=BackupHolds(host.blobs, 0, host.clock),
            is_being_copied=is_being_copied,
        )
        self.loop_time = host.loop_time

    async def swept(self) -> int:
        return (await self.sweep(self.loop_time)).objects


def bury(host: Embedded, count: int) -> None:
    """Closed objects, as if entries had closed them."""
    objects = host.shard.state.objects
    for number in range(count):
        objects.close_if_empty(objects.register(locator(number, host.clock.now_ms)), host.clock.now_ms)


@pytest.mark.serial
async def test_a_sweep_over_very_many_dead_objects_does_not_hold_the_loop(host: Embedded) -> None:
    garbage, longest = Collector(host), dict[str, list[float]]()
    host.clock.now_ms += 1
    bury(host, MANY)

    async def sweep(name: str) -> None:
        # What holds the loop holds it every time; another program on the machine does not.
        for _ in range(TRIES):
            longest.setdefault(name, []).append(await longest_turn(garbage.swept()))

    await sweep("in their grace")
    host.clock.now_ms += GRACE_MS + 1
    await hold_everything(host.blobs, 0, "elsewhere", host.clock.now_ms)
    await sweep("held by a backup")
    host.shard.state.objects.forget(range(MANY // 2))
    await sweep("half of them deleted by another owner")
    assert len(host.shard.state.objects.garbage) == MANY // 2
    assert all(min(turns) < MOST_S for turns in longest.values()), longest


class Watched(ByNumber[ObjectState]):
    """Counts the numbers that are taken out of it."""

    taken = 0

    def __iter__(self) -> Iterator[int]:
        for number in super().__iter__():
            self.taken += 1
            yield number


async def test_a_sweep_takes_a_slice_of_the_dead_at_once(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, sleep, at_once = Watched(), asyncio.sleep, list[int]()
    host.shard.state.objects.garbage = watched
    bury(host, 5 * SLICE_DEAD)

    async def counting(delay: float) -> None:
        at_once.append(watched.taken)
        watched.taken = 0
        await sleep(delay)

    monkeypatch.setattr(asyncio, "sleep", counting)
    assert await Collector(host).swept() == 0
    assert len(at_once) >= 4 and max(at_once) <= 2 * SLICE_DEAD


async def dead_objects(host: Embedded, count: int) -> Sequence[ObjectState]:
    """With their bytes."""
    await host.ask(CreateTopic("t", topic_id(1), 1, {}))
    for _ in range(count):
        host.clock.now_ms += 5
        await host.send("t", 0, Client().batch("t", 0))
    await host.ask(DeleteTopic(topic_id(1)))
    await host.garbage.drain(host.loop_time)
    return list(host.shard.state.objects.garbage.values())


async def over(host: Embedded, garbage: Collector) -> None:
    """The grace, since a first sweep has found them."""
    assert await garbage.swept() == 0
    host.clock.now_ms += GRACE_MS + 1
    await host.ask(RaiseFloor(host.clock.now_ms - GRACE_MS))


def between_slices(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Slices are of one object, and this is done after the first one."""
    monkeypatch.setattr("gateway.housekeeping.garbage.SLICE_DEAD", 1)
    sleep, changes = asyncio.sleep, [change]

    async def changing(delay: float) -> None:
        if not delay and changes:
            changes.pop()()
        await sleep(delay)

    monkeypatch.setattr(asyncio, "sleep", changing)


async def test_what_has_runs_again_after_it_was_found_dead_stays(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await dead_objects(host, 4)
    garbage = Collector(host)
    await over(host, garbage)
    objects = host.shard.state.objects

    def reopen() -> None:
        for stored in (dead[0], dead[3]):
            objects.grow(stored, stored.size)

    between_slices(monkeypatch, reopen)
    assert await garbage.swept() == 2
    assert await host.objects() == {dead[0].locator, dead[3].locator}
    # They die again, and have their grace again.
    for stored in (dead[0], dead[3]):
        objects.close_if_empty(stored, host.clock.now_ms)
    assert await garbage.swept() == 0
    host.clock.now_ms += GRACE_MS + 1
    assert await garbage.swept() == 2 and not await host.objects()


async def test_what_was_forgotten_between_two_slices_is_not_deleted_again(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await dead_objects(host, 4)
    garbage = Collector(host)
    await over(host, garbage)
    numbers = [dead[0].number, dead[2].number]
    between_slices(monkeypatch, lambda: host.shard.state.objects.forget(numbers))
    assert await garbage.swept() == 2
    assert not host.shard.state.objects.garbage


async def test_a_copy_that_is_begun_between_two_slices_keeps_everything(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, copying = await dead_objects(host, 3), list[bool]()
    garbage = Collector(host, lambda: bool(copying))
    await over(host, garbage)
    between_slices(monkeypatch, lambda: copying.append(True))
    assert await garbage.swept() == 0
    assert await host.objects() == {stored.locator for stored in dead}
    copying.clear()
    assert await garbage.swept() == 3
