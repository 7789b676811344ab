"""A consumer of one partition of many reads ranges of far objects, others read them whole."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import ObjectSegments
from gateway.fetch.sharing import REQUEST_BYTES, Sharing
from ledger.types import Position
from tests.support.reading import MIB, ReadingWorld, batch_of, parts, reading_world, records_of
from tests.support.slow_blobs import SlowBlobs, constant
from tests.support.virtual_time import run_virtually

GET_S = 0.05
STORE_BYTES_A_S = 80e6
PARTITIONS = 20
BATCH = batch_of(bytes(50 * 1024 - 200))
OBJECT_BYTES = PARTITIONS * len(BATCH)
OBJECTS = 96
CACHE_BYTES = 32 * OBJECT_BYTES
"""It is the window, and a quarter of it may be read at a time."""
FETCH_BYTES = 8 * len(BATCH)
"""Of a partition."""


@dataclass(slots=True)
class Reads:
    """What was read of the store for the records that were fetched."""

    fetched: int
    read: int
    gets: int
    seconds: float


class World:
    def __init__(self, world: ReadingWorld, blobs: SlowBlobs) -> None:
        self._world = world
        self._blobs = blobs

    async def reads_of(self, consuming: Awaitable[int]) -> Reads:
        loop, blobs = asyncio.get_running_loop(), self._blobs
        began, read, gets = loop.time(), blobs.bytes_read, len(blobs.gets)
        fetched = await consuming
        return Reads(fetched, blobs.bytes_read - read, len(blobs.gets) - gets, loop.time() - began)

    async def one(self, partition: int) -> int:
        """One consumer of one partition, from its beginning to its end."""
        offset = read = 0
        while offset < OBJECTS:
            records = records_of(await self._world.one("t", partition, offset, FETCH_BYTES))
            offset += len(records) // len(BATCH)
            read += len(records)
        return read

    async def each(self) -> int:
        """As many consumers as partitions."""
        return sum(await asyncio.gather(*map(self.one, range(PARTITIONS))))

    async def all(self) -> int:
        """One consumer of all partitions."""
        offsets, read = [0] * PARTITIONS, 0
        while min(offsets) < OBJECTS:
            wanted = [
                ("t", number, offset, FETCH_BYTES)
                for number, offset in enumerate(offsets)
                if offset < OBJECTS
            ]
            for part in parts(await self._world.fetch(*wanted)):
                records = records_of(part)
                offsets[part.index] += len(records) // len(BATCH)
                read += len(records)
        return read


@asynccontextmanager
async def far_world() -> AsyncIterator[World]:
    blobs = SlowBlobs(MemoryBlobs(), get=constant(GET_S), bytes_a_s=STORE_BYTES_A_S)
    segments = ObjectSegments(blobs)
    async with reading_world(segments=segments, cache_bytes=CACHE_BYTES, produce_to_cache=False) as world:
        await world.create(partitions=PARTITIONS)
        for _ in range(OBJECTS):
            await world.produce_many([("t", number, BATCH) for number in range(PARTITIONS)])
        yield World(world, blobs)


def measured(*consumers: Callable[[World], Awaitable[int]]) -> list[Reads]:
    """One after the other."""

    async def main() -> list[Reads]:
        async with far_world() as world:
            return [await world.reads_of(consumer(world)) for consumer in consumers]

    found = run_virtually(main)
    print(*found, sep="\n")  # noqa: T201
    return found


def measured_whole(*consumers: Callable[[World], Awaitable[int]]) -> list[Reads]:
    """The same, if all objects are read whole for which there is room."""
    with pytest.MonkeyPatch.context() as patched:
        for method in ("want", "is_wasted_ahead"):
            patched.setattr(Sharing, method, lambda *_: False)
        return measured(*consumers)


def test_a_consumer_of_one_partition_of_many_reads_ranges_after_the_first_objects() -> None:
    (reads,) = measured(lambda world: world.one(7))
    assert reads.fetched == OBJECTS * len(BATCH)
    # The window is read whole, and what was begun ahead by then.
    assert reads.read < 0.5 * OBJECTS * OBJECT_BYTES
    assert reads.gets <= OBJECTS


def test_one_that_comes_next_reads_what_it_wants_alone_with_no_more_requests_and_no_slower() -> None:
    consumers = [lambda world: world.one(7), lambda world: world.one(8)]
    (_, reads), (_, whole) = measured(*consumers), measured_whole(*consumers)
    assert reads.read <= reads.fetched < 0.1 * whole.read
    assert reads.gets <= whole.gets
    assert reads.seconds <= whole.seconds


def test_a_consumer_of_all_partitions_reads_each_object_once() -> None:
    (reads,) = measured(World.all)
    assert reads.fetched == OBJECTS * OBJECT_BYTES
    assert reads.gets == OBJECTS
    assert reads.read == pytest.approx(OBJECTS * OBJECT_BYTES, rel=0.01)


def test_consumers_of_all_partitions_ask_for_no_more_than_if_all_were_read_whole() -> None:
    assert measured(World.each) == measured_whole(World.each)


@pytest.mark.parametrize("consumers", [World.all, World.each], ids=["one", "many"])
def test_after_a_consumer_of_one_partition_all_are_soon_read_whole(
    consumers: Callable[[World], Awaitable[int]],
) -> None:
    both = [lambda world: world.one(7), consumers]
    (_, reads), (_, whole) = measured(*both), measured_whole(*both)
    assert reads.fetched == OBJECTS * OBJECT_BYTES
    assert reads.gets <= whole.gets + PARTITIONS
    assert reads.read < 1.05 * whole.read
    assert reads.seconds < 1.2 * whole.seconds


def at(start: int, size: int = 1_000) -> Position:
    return Position("wal/0/a.wal", start, size)


def taught(*ranges: Position, size: int = 8 * MIB) -> Sharing:
    """By two objects of which these ranges were wanted, each by a fetch of its own."""
    sharing = Sharing(2 * size)
    for name in ("a", "b", "c"):
        for one in ranges:
            sharing.want(name, size, [one])
    return sharing


def test_before_any_object_has_passed_all_are_read_whole() -> None:
    sharing = Sharing(100 * MIB)
    assert not sharing.want("a", 8 * MIB, [at(0)])
    assert not sharing.is_wasted_ahead(8 * MIB)


def test_an_object_like_those_of_which_little_was_wanted_is_read_in_ranges() -> None:
    sharing = taught(at(0))
    assert sharing.want("d", 8 * MIB, [at(0)])
    assert sharing.is_wasted_ahead(8 * MIB)


def test_as_many_requests_as_cost_more_than_the_bytes_are_not_made() -> None:
    sharing = taught(at(0))
    ranges = [at(number * MIB) for number in range(1 + 8 * MIB // REQUEST_BYTES)]
    assert not sharing.want("d", 8 * MIB, ranges)
    # These are read by one request.
    assert sharing.want("e", 8 * MIB, [at(number * 2_000) for number in range(100)])


def test_an_object_that_many_fetches_have_wanted_by_now_is_read_whole() -> None:
    sharing = taught(at(0), size=16 * MIB)
    answers = [sharing.want("d", 16 * MIB, [at(number * MIB)]) for number in range(4)]
    assert answers == [True, True, False, False]


def test_objects_of_which_half_was_wanted_are_read_whole() -> None:
    sharing = taught(at(0, 4 * MIB))
    assert not sharing.want("d", 8 * MIB, [at(0)])
    assert not sharing.is_wasted_ahead(8 * MIB)


def test_objects_like_those_that_many_fetches_wanted_are_read_whole_at_once() -> None:
    sharing = taught(*[at(number * MIB) for number in range(4)])
    assert not sharing.want("d", 8 * MIB, [at(0)])
    assert not sharing.is_wasted_ahead(8 * MIB)
