"""Fetches of very many short batches: other requests go on meanwhile, and a response has a bounded number."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from gateway.fetch import operation
from gateway.fetch.operation import CHUNK_PARTITIONS, PLANNED_RUNS
from gateway.fetch.planning import PartitionFetch, plan
from gateway.fetch.read_rounds import FETCH_BATCHES
from gateway.fetch.stream import BATCHES_AT_ONCE, MAX_RUNS
from gateway.fetch.turns import BATCH_BYTES, TURN_BYTES
from gateway.wire.messages.fetch import FetchPartitionResponse
from ledger.batch.header import verify_crc, walk
from tests.support.reading import CountingSegments, batch_of, parts, reading_world, records_of

SHORT = batch_of(b"x" * 20)
Result = TypeVar("Result")


class Counted:
    """How often something was done, and most often in one iteration of the event loop."""

    def __init__(self) -> None:
        self.total = self.most = self.now = 0

    def add(self, count: int) -> None:
        self.total += count
        self.now += count
        self.most = max(self.most, self.now)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()

    def counting(fetched: PartitionFetch, *arguments: Any) -> None:
        plan(fetched, *arguments)
        counted.add(len(fetched.stream.runs) if fetched.stream is not None else 0)

    monkeypatch.setattr(operation, "plan", counting)
    return counted


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()

    def counting(batch: memoryview) -> bool:
        counted.add(1)
        return verify_crc(batch)

    monkeypatch.setattr("gateway.fetch.stream.verify_crc", counting)
    return counted


async def beside(work: Awaitable[Result], *counted: Counted) -> Result:
    """The result of this work, while each iteration of the event loop counts from zero."""

    async def begin_iterations() -> None:
        while True:
            for one in counted:
                one.now = 0
            await asyncio.sleep(0)

    beginning = asyncio.create_task(begin_iterations())
    try:
        return await work
    finally:
        beginning.cancel()


def offsets_of(response: FetchPartitionResponse) -> list[int]:
    return [batch.base_offset for batch in walk(memoryview(records_of(response)))]


@pytest.mark.parametrize("keeps_reads", [True, False])
async def test_many_runs_of_many_partitions_are_planned_and_taken_in_turns(
    keeps_reads: bool, planned: Counted, taken: Counted
) -> None:
    partitions, runs = 12, MAX_RUNS // 2
    segments = CountingSegments()
    segments.capabilities = replace(segments.capabilities, keeps_reads=keeps_reads)
    async with reading_world(produce_to_cache=False, segments=segments) as world:
        await world.create(partitions=partitions)
        for _ in range(runs):
            await world.produce_many([("t", partition, SHORT) for partition in range(partitions)])
        fetch = world.fetch(*[("t", partition, 0) for partition in range(partitions)])
        response = await beside(fetch, planned, taken)
    assert [offsets_of(part) for part in parts(response)] == [list(range(runs))] * partitions
    assert planned.total >= runs * partitions and taken.total == runs * partitions
    assert planned.most <= PLANNED_RUNS + MAX_RUNS
    assert taken.most <= TURN_BYTES // BATCH_BYTES + BATCHES_AT_ONCE


async def test_a_fetch_takes_a_bounded_number_of_batches_and_the_next_goes_on(taken: Counted) -> None:
    count = 2 * FETCH_BATCHES + 5
    fetched = list[int]()
    async with reading_world(produce_to_cache=False) as world:
        await world.create()
        for start in range(0, count, 10_000):
            await world.produce(*[SHORT] * min(10_000, count - start))
        responses = 0
        while len(fetched) < count:
            # There are more bytes than it takes, which must not make it wait for others.
            least = (FETCH_BATCHES + 1_000) * len(SHORT) if not responses else 1
            answer = world.fetch(("t", 0, len(fetched), 1 << 26), min_bytes=least, max_wait_ms=60_000)
            (part,) = parts(await beside(asyncio.wait_for(answer, 30), taken))
            assert part.error_code == 0
            fetched += offsets_of(part)
            responses += 1
            assert len(fetched) <= responses * (FETCH_BATCHES + 2 * BATCHES_AT_ONCE)
            if responses == 2:
                break
        rest = await world.one("t", 0, len(fetched))
        fetched += offsets_of(rest)
    assert fetched == list(range(count))
    assert taken.most <= TURN_BYTES // BATCH_BYTES + BATCHES_AT_ONCE


async def test_partitions_after_one_of_very_many_batches_are_served_some_as_well() -> None:
    async with reading_world(produce_to_cache=False) as world:
        await world.create(partitions=2)
        for _ in range(2):
            await world.produce_many([("t", 0, SHORT)] * FETCH_BATCHES)
        await world.produce(SHORT, SHORT, partition=1)
        first, second = parts(await world.fetch(("t", 0, 0, 1 << 26), ("t", 1, 0, 1 << 26)))
    assert len(offsets_of(first)) < FETCH_BATCHES + 2 * BATCHES_AT_ONCE
    assert offsets_of(second) == [0, 1]


async def test_short_batches_are_sent_in_few_buffers_which_the_budget_counts() -> None:
    long = batch_of(b"y" * 10_000)
    unsent = list[Callable[[], None]]()
    async with reading_world(produce_to_cache=False) as world:
        await world.create()
        await world.produce(SHORT, SHORT, long, SHORT)
        (part,) = parts(await world.fetch(("t", 0, 0), unsent=unsent))
        assert [len(buffer) for buffer in part.records or ()] == [
            2 * len(SHORT),
            16,
            len(long) - 16,
            len(SHORT),
        ]
        assert offsets_of(part) == [0, 1, 2, 3]
        assert world.fetch_service.budget.held_bytes >= 3 * len(SHORT) + len(long)
        unsent[0]()
        assert world.fetch_service.budget.held_bytes == 0


async def test_a_fetch_that_waits_for_more_is_planned_once_however_often_its_partitions_move(
    planned: Counted,
) -> None:
    partitions, runs, moves = 4, 300, 20
    async with reading_world(produce_to_cache=False) as world:
        await world.create(partitions=partitions)
        for _ in range(runs):
            await world.produce_many([("t", partition, SHORT) for partition in range(partitions)])
        everything = (partitions * runs + moves) * len(SHORT)
        fetch = world.fetch(
            *[("t", partition, 0) for partition in range(partitions)],
            min_bytes=everything,
            max_wait_ms=60_000,
        )
        waiting = asyncio.create_task(fetch)
        for _ in range(moves):
            await world.produce(SHORT)
        response = await asyncio.wait_for(waiting, 30)
    assert [len(offsets_of(part)) for part in parts(response)] == [runs + moves] + [runs] * (partitions - 1)
    # At first, again as one has moved meanwhile, when that one moves next, and before they are read.
    assert planned.total <= 2 * partitions * (runs + moves) + 2 * (runs + moves)


async def test_so_is_one_of_very_many_partitions(planned: Counted) -> None:
    partitions, moves = CHUNK_PARTITIONS + 44, 60
    async with reading_world() as world:
        await world.create(partitions=partitions)
        await world.produce_many([("t", partition, SHORT) for partition in range(partitions)])
        wanted = [("t", partition, 0) for partition in range(partitions)]
        fetch = world.fetch(*wanted, min_bytes=(partitions + moves) * len(SHORT), max_wait_ms=60_000)
        waiting = asyncio.create_task(fetch)
        for move in range(moves):
            await world.produce(SHORT, partition=move % 3)
        response = await asyncio.wait_for(waiting, 30)
    assert sum(len(offsets_of(part)) for part in parts(response)) == partitions + moves
    assert planned.total <= 2 * (partitions + moves) + 10 * moves


async def test_batches_that_were_written_lately_are_bounded_too(taken: Counted) -> None:
    partitions, count = 20, 1_000
    async with reading_world() as world:
        await world.create(partitions=partitions)
        for partition in range(partitions):
            await world.produce_many([("t", partition, SHORT)] * count)
        wanted = [("t", partition, 0) for partition in range(partitions)]
        response = await world.fetch(*wanted, max_wait_ms=60_000)
        got = [len(offsets_of(part)) for part in parts(response)]
        assert not taken.total
        assert FETCH_BATCHES <= sum(got) <= FETCH_BATCHES + count
        rest = await world.fetch(*[("t", at, offset) for at, offset in enumerate(got) if offset < count])
        assert sum(len(offsets_of(part)) for part in parts(rest)) == partitions * count - sum(got)
