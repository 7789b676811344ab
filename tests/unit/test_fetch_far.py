"""Fetches over a far store: an object is read once for all, in bounded memory, and delays no other one."""

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.locators import WalLocators
from adapters.segments.objects import READS_AT_ONCE, ObjectSegments
from gateway.fetch.cache import RunCache
from gateway.fetch.object_reads import MissingRange, ObjectReads
from gateway.fetch.stream import PATCHED_BYTES
from gateway.telemetry.metrics import Metrics
from gateway.wire.errors import ErrorCode
from ledger.errors import StoreUnavailable
from ledger.partitions.state import PartitionLog
from ledger.ports import Blobs
from ledger.types import Buffer, Position
from tests.support.faulty import Faults, FaultyBlobs
from tests.support.loop_time import longest_turn
from tests.support.reading import (
    MIB,
    NOW_MS,
    ReadingWorld,
    batch_of,
    parts,
    reading_world,
    records_of,
    with_base,
)
from tests.support.slow_blobs import SlowBlobs, constant
from tests.support.virtual_time import run_virtually

GET_S = 0.1
A, B = batch_of(b"a" * 100), batch_of(b"b" * 300, b"c")
LARGE = batch_of(bytes(MIB - 200))
NONE, STORAGE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


class Zeros(MemoryBlobs):
    """Any object, of any size."""

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        await asyncio.sleep(0)
        return bytes(size or 0)


class Damaging(MemoryBlobs):
    """The first read of these bytes has others in their place."""

    def __init__(self, what: bytes) -> None:
        super().__init__()
        self._what = what
        self._is_due = True

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        data = await super().get(key, start, size)
        if self._is_due:
            self._is_due = False
            data = data.replace(self._what, bytes(len(self._what)), 1)
        return data


@asynccontextmanager
async def far_world(
    inner: Blobs | None = None, hot: bool = False, cache_bytes: int = 64 * MIB
) -> AsyncIterator[tuple[ReadingWorld, SlowBlobs]]:
    """A world over blobs whose reads take GET_S. `hot`: batches are cached as they are written."""
    blobs = SlowBlobs(inner or MemoryBlobs(), get=constant(GET_S))
    segments = ObjectSegments(blobs)
    async with reading_world(segments=segments, cache_bytes=cache_bytes, produce_to_cache=hot) as world:
        yield world, blobs


def objects_of(world: ReadingWorld) -> ObjectReads:
    objects = world.fetch_service.reader.objects
    assert objects is not None
    return objects


def now() -> float:
    return asyncio.get_running_loop().time()


def far(main: Callable[..., Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run on a virtual clock in a far world."""

    async def run() -> None:
        async with far_world(**options) as (world, blobs):
            await main(world, blobs)

    run_virtually(run)


def test_an_object_is_read_once_however_many_consumers_and_partitions_want_it() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=8)
        await world.produce_many([("t", partition, A) for partition in range(8)])
        alone = [world.fetch(("t", partition, 0)) for partition in range(8) for _ in range(3)]
        together = world.fetch(*[("t", partition, 0) for partition in range(8)])
        got = [
            records_of(part) for fetched in await asyncio.gather(*alone, together) for part in parts(fetched)
        ]
        assert got == [with_base(A, 0)] * 32
        (stored,) = await blobs.list("wal/")
        assert blobs.gets == [(stored.key, 0, stored.size)]
        assert abs(now() - GET_S) < 0.001
        # And it stays.
        await world.one("t", 3, 0)
        assert len(blobs.gets) == 1

    far(main)


def test_what_was_just_written_is_not_read_at_all() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create()
        for offset in range(5):
            await world.produce(A)
            for _ in range(3):
                assert records_of(await world.one("t", 0, offset)) == with_base(A, offset)
        assert not blobs.gets
        assert objects_of(world).counts.ahead == 0

    far(main, hot=True)


def test_what_was_written_is_here_when_its_entry_is_applied() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create()
        cached: list[int] = []

        def touched(logs: Sequence[PartitionLog]) -> None:
            # A fetch that is planned now wants these.
            for log in logs:
                (run,) = log.find(log.high_watermark - 1, 1)
                locator = world.shard.state.objects.locator(run.object_number)
                cached.append(world.cache.get(locator, run.start, run.size)[1])

        world.shard.subscribe(touched)
        await world.produce(A)
        await world.produce(B)
        assert cached == [len(A), len(B)]

    far(main, hot=True)


def test_a_fetch_that_is_cancelled_leaves_the_read_to_the_others() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create()
        await world.produce(A)
        first, second = [asyncio.create_task(world.one("t", 0, 0)) for _ in range(2)]
        await asyncio.sleep(GET_S / 2)
        first.cancel()
        assert records_of(await second) == with_base(A, 0)
        assert first.cancelled()
        assert len(blobs.gets) == 1
        # Nor does the last one end it: the object is here for the next.
        await world.produce(B)
        last = asyncio.create_task(world.one("t", 0, 1))
        await asyncio.sleep(GET_S / 2)
        last.cancel()
        await asyncio.sleep(GET_S)
        assert records_of(await world.one("t", 0, 1)) == with_base(B, 1)
        assert len(blobs.gets) == 2

    far(main)


def test_a_read_that_fails_fails_all_who_wait_and_is_made_again() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=2)
        await world.produce_many([("t", 0, A), ("t", 1, B)])
        await world.produce(B)
        fetches = [world.fetch(("t", partition, 0)) for partition in (0, 0, 1)]
        codes = [part.error_code for fetched in await asyncio.gather(*fetches) for part in parts(fetched)]
        # The first partition has the object that was read as well: it is served in the next fetch.
        assert codes == [STORAGE] * 3
        assert not world.alarms
        assert records_of(await world.one("t", 0, 0)) == with_base(A, 0) + with_base(B, 1)
        assert len(blobs.gets) == 3

    faults = Faults(1, only=("blobs.get",))
    far(main, inner=FaultyBlobs(MemoryBlobs(), faults))


def test_batches_before_those_that_could_not_be_read_are_served() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create()
        await world.produce(A)
        await world.produce(B)
        fetched = await world.one("t", 0, 0)
        assert (fetched.error_code, records_of(fetched)) == (NONE, with_base(A, 0))
        assert records_of(await world.one("t", 0, 1)) == with_base(B, 1)

    faults = Faults(2, only=("blobs.get",))
    far(main, inner=FaultyBlobs(MemoryBlobs(), faults))


def test_an_object_that_is_gone_is_looked_up_again_three_times() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create()
        await world.produce(A)
        (stored,) = await blobs.list("wal/")
        await blobs.delete([stored.key])
        assert (await world.one("t", 0, 0)).error_code == STORAGE
        assert world.alarms == ["fetch.object_missing"]
        # Each time the range alone too: an object may be shorter than the ledger says, and have it.
        assert len(blobs.gets) == 2 * 4
        assert not len(world.cache)

    far(main)


def test_an_object_that_hangs_holds_a_fetch_to_its_deadline_and_no_other_object() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=2)
        await world.produce(A)
        (stored,) = await blobs.list("wal/")
        await world.produce(B, partition=1)
        with blobs.hanging(stored.key):
            both = asyncio.create_task(world.fetch(("t", 0, 0), ("t", 1, 0)))
            longer = asyncio.create_task(world.fetch(("t", 0, 0), max_wait_ms=20_000))
            assert records_of(await world.one("t", 1, 0)) == with_base(B, 0)
            assert abs(now() - GET_S) < 0.001
            hung, other = parts(await both)
            assert (hung.error_code, records_of(other)) == (STORAGE, with_base(B, 0))
            assert abs(now() - 10.0) < 0.001
            assert parts(await longer)[0].error_code == STORAGE
            assert abs(now() - 20.0) < 0.001
        assert records_of(await world.one("t", 0, 0)) == with_base(A, 0)
        # The same call, which was under way all the time.
        assert len(blobs.gets) == 2

    far(main)


def test_a_search_after_damage_ends_with_the_fetch_as_well() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=2)
        await world.produce_many([("t", 0, A), ("t", 0, B), ("t", 1, B)])
        (stored,) = await blobs.list("wal/")
        fetch = asyncio.create_task(world.one("t", 0, 1))
        await asyncio.sleep(GET_S / 2)
        # The object is under way; the table of its frame is read after it.
        with blobs.hanging(stored.key):
            assert (await fetch).error_code == STORAGE
            assert abs(now() - 10.0) < 0.001

    far(main, inner=Damaging(b"aaaa"))


def test_an_object_above_16_mib_is_read_by_ranges() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=2)
        await world.produce_many([("t", number % 2, LARGE) for number in range(17)])
        (stored,) = await blobs.list("wal/")
        assert stored.size > 16 * MIB
        fetched = await world.one("t", 1, 0, 2 * MIB)
        assert records_of(fetched) == with_base(LARGE, 0) + with_base(LARGE, 1)
        assert blobs.bytes_read <= 2 * MIB
        # What was read is cached, for all that read there.
        reads = len(blobs.gets)
        assert records_of(await world.one("t", 1, 0, MIB)) == with_base(LARGE, 0)
        assert len(blobs.gets) == reads

    far(main)


def test_without_room_for_the_object_only_the_ranges_are_read() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=6)
        for partition in range(6):
            await world.produce_many([("t", partition, LARGE), ("t", (partition + 1) % 6, LARGE)])
        fetches = [world.one("t", partition, 0, MIB) for partition in range(6)]
        for fetched in await asyncio.gather(*fetches):
            assert records_of(fetched) == with_base(LARGE, 0)
        whole = [get for get in blobs.gets if get[1] == 0]
        # A quarter of the cache: two objects of 2 MiB.
        assert 0 < len(whole) <= 2
        assert world.cache.reserved_bytes == 0
        assert world.cache.held_bytes <= 16 * MIB

    far(main, cache_bytes=16 * MIB)


def test_many_small_objects_are_read_once_and_128_at_once() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        count = 2 * READS_AT_ONCE
        await world.create(partitions=count)
        for partition in range(count):
            await world.produce(A, partition=partition)
        fetches = [world.fetch(*[("t", partition, 0) for partition in range(count)]) for _ in range(3)]
        for fetched in await asyncio.gather(*fetches):
            assert [records_of(part) for part in parts(fetched)] == [with_base(A, 0)] * count
        assert len(blobs.gets) == count
        assert blobs.most_under_way["get"] == READS_AT_ONCE
        assert objects_of(world).under_way == 0
        assert now() < 3 * GET_S

    far(main)


def test_a_small_range_of_a_large_object_does_not_keep_it_in_memory() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=3)
        await world.produce_many([("t", 0, A), ("t", 1, LARGE), ("t", 2, LARGE), ("t", 2, LARGE)])
        small, large = parts(await world.fetch(("t", 0, 0), ("t", 2, 0, 3 * MIB)))
        assert whole_of(small.records or ()) == len(A)
        # More than half of the object is a view of it.
        (stored,) = await blobs.list("wal/")
        assert whole_of(large.records or ()) == stored.size + 2 * PATCHED_BYTES

    far(main)


def whole_of(records: Sequence[Buffer]) -> int:
    """Bytes that these keep in memory."""
    wholes = [record.obj if isinstance(record, memoryview) else record for record in records]
    return sum({id(whole): memoryview(whole).nbytes for whole in wholes}.values())


def test_small_data_keep_no_object_while_the_fetch_waits_for_others() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=2)
        await world.produce_many([("t", 0, A), ("t", 1, LARGE)])
        (large,) = await blobs.list("wal/")
        await world.produce(B)
        hangs = next(found for found in await blobs.list("wal/") if found.key != large.key)
        small = MissingRange(Position(large.key, 0, 100), large.size)
        other = MissingRange(Position(hangs.key, 0, 100), hangs.size)
        with blobs.hanging(hangs.key):
            fill = asyncio.create_task(objects_of(world).fill([small, other], now() + 10.0))
            await asyncio.sleep(2 * GET_S)
            assert not fill.done() and isinstance(small.data, bytes)
            await fill
        assert isinstance(other.failure, StoreUnavailable)

    far(main)


@pytest.mark.serial
async def test_a_fetch_of_very_many_objects_does_not_hold_the_loop() -> None:
    locators = WalLocators(0, os.urandom)
    locators.see(NOW_MS)
    objects = ObjectReads(ObjectSegments(Zeros()), RunCache(64 * MIB))
    missing = [MissingRange(Position(locators.new(), 100, 100), MIB) for _ in range(5000)]
    turn_s = await longest_turn(objects.fill(missing, now() + 60.0))
    assert all(part.data == bytes(100) for part in missing)
    assert turn_s < 0.02


def test_an_object_of_many_batches_is_one_entry() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=100)
        await world.produce_many([("t", number % 100, A) for number in range(3000)])
        for partition in range(100):
            assert len(records_of(await world.one("t", partition, 0))) == 30 * len(A)
        assert (len(blobs.gets), len(world.cache)) == (1, 1)

    far(main)


@pytest.mark.serial
async def test_a_large_fetch_of_cached_objects_does_not_hold_the_loop() -> None:
    async with far_world(cache_bytes=256 * MIB) as (world, blobs):
        await world.create(partitions=12)
        for first in range(0, 12, 3):
            for _ in range(4):
                await world.produce_many([("t", first + number, LARGE) for number in range(3)])
        partitions = [("t", number, 0, 4 * MIB) for number in range(12)]
        for _ in range(2):
            turn_s = await longest_turn(world.fetch(*partitions, max_bytes=55 * MIB))
        assert len(blobs.gets) == 16
        assert turn_s < 0.02


def test_damage_on_the_way_is_not_kept() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create(partitions=2)
        await world.produce_many([("t", 0, A), ("t", 1, B)])
        assert (await world.one("t", 0, 0)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert world.alarms == ["fetch.batch_damaged"]
        assert not len(world.cache)
        assert records_of(await world.one("t", 0, 0)) == with_base(A, 0)
        assert records_of(await world.one("t", 1, 0)) == with_base(B, 0)

    far(main, inner=Damaging(b"aaaa"))


async def test_lookups_by_time_share_the_object_with_fetches() -> None:
    # Not on a virtual clock: a thread decompresses.
    async with far_world() as (world, blobs):
        await world.create(partitions=2)
        await world.produce_many([("t", 0, A), ("t", 1, B)])
        await world.one("t", 1, 0)
        assert (await world.offset(NOW_MS)).offset == 0
        assert len(blobs.gets) == 1


def test_reads_of_objects_are_counted() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        metrics = Metrics()
        metrics.watch_object_reads(objects_of(world).counts)
        await world.create()
        await world.produce(A)
        await asyncio.gather(*(world.one("t", 0, 0) for _ in range(3)))
        await world.one("t", 0, 0)
        text = metrics.render().decode()
        assert 'dragoman_object_reads_total{result="miss"} 1.0' in text
        assert 'dragoman_object_reads_total{result="hit"} 3.0' in text
        assert f"dragoman_object_read_bytes_total {blobs.bytes_read}.0" in text

    far(main)


def test_the_memory_of_a_catch_up_is_that_of_the_cache() -> None:
    async def main(world: ReadingWorld, blobs: SlowBlobs) -> None:
        await world.create()
        for _ in range(48):
            await world.produce(LARGE)
        tracemalloc.start()
        try:
            offset = 0
            while offset < 48:
                offset += len(records_of(await world.one("t", 0, offset, MIB))) // len(LARGE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert world.cache.held_bytes <= 8 * MIB
        # The cache, and a response with its copy in this test.
        assert peak < 8 * MIB + 4 * MIB

    far(main, cache_bytes=8 * MIB)
