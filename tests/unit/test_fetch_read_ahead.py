"""A sequential reader of a far store finds the next objects in memory; others cause no read in vain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import ObjectSegments
from gateway.fetch.object_reads import AHEAD_S, ObjectReads
from gateway.fetch.read_ahead import FIRST_STEP_BYTES, LAST_STEP_BYTES
from tests.support.reading import MIB, ReadingWorld, batch_of, reading_world, records_of
from tests.support.slow_blobs import SlowBlobs, constant
from tests.support.virtual_time import run_virtually

GET_S = 0.1
STORE_BYTES_A_S = 80e6
"""Of one connection to a bucket."""
BATCH = batch_of(bytes(MIB // 4 - 200))
BATCHES = 8
OBJECT_BYTES = BATCHES * len(BATCH)


@asynccontextmanager
async def far_world(
    objects: int, cache_bytes: int = 256 * MIB, partitions: int = 1
) -> AsyncIterator[tuple[ReadingWorld, SlowBlobs]]:
    """Each object has BATCHES batches, round-robin over the partitions."""
    blobs = SlowBlobs(MemoryBlobs(), get=constant(GET_S), bytes_a_s=STORE_BYTES_A_S)
    segments = ObjectSegments(blobs)
    async with reading_world(segments=segments, cache_bytes=cache_bytes, produce_to_cache=False) as world:
        await world.create(partitions=partitions)
        for _ in range(objects):
            await world.produce_many([("t", number % partitions, BATCH) for number in range(BATCHES)])
        yield world, blobs


def now() -> float:
    return asyncio.get_running_loop().time()


def reads_of(world: ReadingWorld) -> ObjectReads:
    objects = world.fetch_service.reader.objects
    assert objects is not None
    return objects


async def consume(
    world: ReadingWorld, end: int, bytes_a_s: float = 1e12, partition: int = 0, offset: int = 0
) -> int:
    """Read up to `end`, and work on the records at this rate. How many bytes these were."""
    read = 0
    while offset < end:
        records = records_of(await world.one("t", partition, offset, MIB))
        offset += len(records) // len(BATCH)
        read += len(records)
        await asyncio.sleep(len(records) / bytes_a_s)
    return read


@pytest.mark.parametrize("mb_a_s", [50, 100])
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_sequential_reader_is_not_slower_than_it_works(mb_a_s: int, partitions: int) -> None:
    async def main() -> None:
        async with far_world(objects=60, partitions=partitions) as (world, blobs):
            rate = mb_a_s * 1e6 / partitions
            end = 60 * BATCHES // partitions
            began = now()
            read = await asyncio.gather(*(consume(world, end, rate, number) for number in range(partitions)))
            took_s = now() - began
            # The first objects have to be waited for: what is ahead grows from step to step.
            startup_s = 4 * (GET_S + OBJECT_BYTES / STORE_BYTES_A_S)
            assert took_s < sum(read) / (mb_a_s * 1e6) + startup_s
            assert sum(read) == 60 * OBJECT_BYTES
            assert len(blobs.gets) == 60

    run_virtually(main)


def test_a_reader_that_stops_has_at_most_two_steps_read_in_vain() -> None:
    async def main() -> None:
        async with far_world(objects=80) as (world, blobs):
            await consume(world, 20 * BATCHES, 100e6)
            begun = len(blobs.gets)
            await asyncio.sleep(60)
            assert len(blobs.gets) == begun
            assert 20 < begun <= 20 + 2 * -(-LAST_STEP_BYTES // OBJECT_BYTES)

    run_virtually(main)


def test_the_first_steps_are_small_and_a_single_fetch_has_none() -> None:
    async def main() -> None:
        async with far_world(objects=40) as (world, blobs):
            await consume(world, 1)
            assert (len(blobs.gets), reads_of(world).counts.ahead) == (1, 0)
            await consume(world, 8, offset=4)
            assert reads_of(world).counts.ahead == FIRST_STEP_BYTES // OBJECT_BYTES
            # Elsewhere in the log: a reader that jumps is none that goes on.
            for offset in (160, 80, 240, 32):
                await world.one("t", 0, offset, MIB)
            assert reads_of(world).counts.ahead == FIRST_STEP_BYTES // OBJECT_BYTES

    run_virtually(main)


def test_readers_in_step_with_each_other_share_what_is_ahead() -> None:
    async def main() -> None:
        async with far_world(objects=40) as (world, blobs):
            await asyncio.gather(*(consume(world, 40 * BATCHES, 50e6) for _ in range(3)))
            assert len(blobs.gets) == 40

    run_virtually(main)


def test_what_is_ahead_of_all_readers_together_is_bounded() -> None:
    async def main() -> None:
        cache_bytes = 64 * MIB
        async with far_world(objects=200, cache_bytes=cache_bytes) as (world, _blobs):
            most = most_ahead = 0

            async def watch() -> None:
                nonlocal most, most_ahead
                while True:
                    most = max(most, world.cache.reserved_bytes)
                    most_ahead = max(most_ahead, reads_of(world).ahead_bytes)
                    assert world.cache.held_bytes <= cache_bytes
                    await asyncio.sleep(GET_S / 20)

            watching = asyncio.create_task(watch())
            readers = (
                consume(world, first + 10 * BATCHES, 1e6, offset=first) for first in range(0, 1600, 80)
            )
            await asyncio.gather(*readers)
            watching.cancel()
            assert OBJECT_BYTES < most <= cache_bytes // 4
            assert cache_bytes // 8 < most_ahead <= cache_bytes // 4

    run_virtually(main)


def test_readers_that_went_away_do_not_take_the_room_of_others() -> None:
    async def main() -> None:
        async with far_world(objects=120, cache_bytes=64 * MIB) as (world, _):
            for first in range(0, 320, 40):
                await consume(world, first + 16, offset=first)
            assert reads_of(world).ahead_bytes > 8 * MIB
            await asyncio.sleep(AHEAD_S + 1)
            before = reads_of(world).counts.ahead
            await consume(world, 700, offset=640)
            assert reads_of(world).counts.ahead > before
            assert reads_of(world).ahead_bytes <= 16 * MIB

    run_virtually(main)


def test_a_tail_that_all_read_stays_hot_while_one_consumer_catches_up() -> None:
    async def main() -> None:
        blobs = SlowBlobs(MemoryBlobs(), get=constant(GET_S), bytes_a_s=STORE_BYTES_A_S)
        async with reading_world(segments=ObjectSegments(blobs), cache_bytes=32 * MIB) as world:
            await world.create()
            for _ in range(60):
                await world.produce_many([("t", 0, BATCH)] * BATCHES)
            catching_up = asyncio.create_task(consume(world, 50 * BATCHES))
            tail = 60 * BATCHES
            # Others are up to 12 MiB after the end, in a cache through which 100 MiB are read meanwhile.
            for _ in range(20):
                await world.produce(BATCH)
                tail += 1
                for offset in (tail - 1, tail - 20, tail - 48):
                    began = now()
                    assert records_of(await world.one("t", 0, offset, MIB))
                    assert now() == began
                await asyncio.sleep(0.1)
            assert not catching_up.done() or len(blobs.gets) >= 50
            await catching_up

    run_virtually(main)
