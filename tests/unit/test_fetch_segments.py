"""What clients read is the same before and after runs were merged into segments (invariant 4)."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.blobs.files import FileBlobs
from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import ObjectSegments
from adapters.segments.segment_blobs import LocalRanges, SegmentBlobs
from adapters.segments.wal import WalSegments
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.wire.errors import ErrorCode
from ledger.batch.header import HEADER_BYTES, walk
from ledger.formats.segment import SegmentBatch, encode_segment
from ledger.keys import index_locator, segment_locator
from ledger.partitions.runs import Run
from ledger.ports import Blobs
from ledger.swaps.requests import SegmentFile, SegmentRun, Swapped, SwapSegments, TakePin
from ledger.types import Position
from tests.support.reading import MIB, NOW_MS, ReadingWorld, batch_of, reading_world, records_of
from tests.support.slow_blobs import SlowBlobs

JOB = b"j" * 16
COUNTS = (3, 1, 4, 1, 5, 9, 2, 6)


class Merging:
    """A gateway's services, and the job that merges what they have stored."""

    def __init__(self, world: ReadingWorld, store: WalAndSegments, blobs: Blobs) -> None:
        self.world = world
        self.store = store
        self.blobs = blobs

    async def batches(self, runs: Sequence[Run]) -> list[SegmentBatch]:
        found = []
        for run in runs:
            locator = self.world.shard.state.objects.locator(run.object_number)
            (data,) = await self.store.read([Position(locator, run.start, run.size)])
            assert data is not None
            offset = run.base
            for one in walk(memoryview(data)):
                base = offset if run.dense else one.base_offset
                batch = bytes(data[one.position : one.position + one.size_bytes])
                found.append(SegmentBatch(base, batch, run.max_timestamp))
                offset = base + one.last_offset_delta + 1
        return found

    async def merge(
        self, runs: Sequence[Run] = (), without: Sequence[int] = (), interval: int = 1_000
    ) -> str:
        """All runs of the partition, or these, into one segment. `without`: numbers of batches that are left
        out, as log compaction does. Its locator."""
        log = self.world.log()
        runs = runs or list(log.runs())
        batches = [one for n, one in enumerate(await self.batches(runs)) if n not in without]
        encoded = encode_segment(batches, runs[0].base, NOW_MS, interval)
        locator = segment_locator(log.topic_id, log.index, runs[0].base, NOW_MS, os.urandom(10))
        await self.store.write_segment(locator, encoded.buffers, encoded.index)
        request = SwapSegments(
            JOB,
            int.from_bytes(os.urandom(3), "big"),
            log.topic_id,
            log.index,
            runs[0].base,
            runs[-1].last,
            log.layout_version,
            [SegmentFile(locator, encoded.size)],
            [SegmentRun(0, *run) for run in encoded.runs],
        )
        await self.world.shard.ask(TakePin(JOB), self.world.soon())
        assert isinstance(await self.world.shard.ask(request, self.world.soon()), Swapped)
        return locator

    async def everything(self, max_bytes: int = MIB) -> bytes:
        """As a consumer reads it from the log start on."""
        log, read, offset = self.world.log(), b"", self.world.log().log_start
        while offset < log.high_watermark:
            part = await self.world.one("t", 0, offset, max_bytes)
            assert part.error_code == ErrorCode.NONE
            records = records_of(part)
            *_, last = walk(memoryview(records))
            offset = last.base_offset + last.last_offset_delta + 1
            read += records
        return read


@asynccontextmanager
async def merging(kind: str, root: Path) -> AsyncIterator[Merging]:
    blobs: Blobs = FileBlobs(root / "blobs") if kind == "local" else MemoryBlobs()
    if kind == "local":
        wal = WalSegments(root / "wal", roll_bytes=10**9)
        store = WalAndSegments(wal, SegmentBlobs(blobs, LocalRanges(root / "blobs")))
    else:
        store = WalAndSegments(ObjectSegments(blobs), SegmentBlobs(blobs))
    async with reading_world(segments=store, produce_to_cache=False) as world:
        await world.create()
        yield Merging(world, store, blobs)
    await store.close()


each_kind = pytest.mark.parametrize("kind", ["local", "far"])


async def produce(world: ReadingWorld, drafts: int = 3) -> None:
    for draft in range(drafts):
        batches = [
            batch_of(*[b"%d %d" % (draft, n)] * count, base_timestamp=NOW_MS + 1_000 * draft + 10 * n)
            for n, count in enumerate(COUNTS)
        ]
        await world.produce(*batches)


@each_kind
async def test_every_offset_is_read_as_before_the_merge(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        world = one.world
        await produce(world)
        end = world.log().high_watermark
        whole = await one.everything()
        before = {at: records_of(await world.one("t", 0, at, 300)) for at in range(end)}
        times = [NOW_MS + 5 * n for n in range(700)]
        offsets = [await world.offset(at) for at in (*times[::20], -1, -2, -3)]
        locator = await one.merge()
        (run,) = world.log().runs()
        assert not run.dense and (run.base, run.last) == (0, end - 1)
        for max_bytes in (1, 300, MIB):
            assert await one.everything(max_bytes) == whole
        assert {at: records_of(await world.one("t", 0, at, 300)) for at in range(end)} == before
        assert [await world.offset(at) for at in (*times[::20], -1, -2, -3)] == offsets
        # From the segment: what was merged may go.
        wal = [stored.locator for stored in await one.store.objects() if stored.locator != locator]
        await one.store.delete(wal)
        world.fetch_service.offset_index = SparseOffsetIndex()
        assert await one.everything() == whole
        assert not world.alarms


@each_kind
async def test_what_is_produced_after_a_merge_follows_it(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        await produce(one.world, 2)
        await one.merge()
        await produce(one.world, 2)
        whole = await one.everything()
        assert len(list(one.world.log().runs())) > 1
        # A segment and runs of WAL objects together: a segment is merged again.
        await one.merge()
        assert await one.everything() == whole
        assert len(list(one.world.log().runs())) == 1


@each_kind
async def test_a_merge_while_fetches_run_changes_nothing_for_them(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        await produce(one.world, 6)
        whole = await one.everything()

        async def merge() -> None:
            for size in (2, 1, 3):
                await asyncio.sleep(0)
                await one.merge(list(one.world.log().runs())[:size])

        merger = asyncio.create_task(merge())
        reads = await asyncio.gather(*(one.everything(200 + 7 * n) for n in range(20)))
        await merger
        assert set(reads) == {whole}


@each_kind
async def test_a_fetch_in_a_gap_goes_on_at_the_next_batch(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        world = one.world
        await produce(world, 1)
        bases = [batch.base_offset for batch in await one.batches(list(world.log().runs()))]
        await one.merge(without=(2, 3, 5))
        kept = [n for n in range(len(COUNTS)) if n not in (2, 3, 5)]
        for offset in range(world.log().high_watermark):
            (first, *_) = walk(memoryview(records_of(await world.one("t", 0, offset, 1))))
            wanted = next(n for n in kept if bases[n] + COUNTS[n] > offset)
            assert first.base_offset == bases[wanted], offset


@each_kind
async def test_records_before_the_log_start_stay_hidden(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        world = one.world
        await produce(world, 1)
        await one.merge()
        log = world.log()
        await world.delete_records(log.topic_id, 0, 10)
        assert (await world.one("t", 0, 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await world.offset(0)).offset >= 10
        assert records_of(await world.one("t", 0, 10))


async def damage(one: Merging, locator: str, batch: int, interval: int = 1_000) -> None:
    """Flip a bit in the records of a batch."""
    content = bytearray(await one.blobs.get(locator))
    start = [one.position for one in walk(memoryview(content)[32:-16])][batch] + 32
    content[start + HEADER_BYTES + 2] ^= 1
    await one.blobs.delete([locator])
    await one.blobs.put(locator, [content])


@each_kind
async def test_a_damaged_batch_is_corrupt_and_those_after_it_are_found(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        world = one.world
        await produce(world, 1)
        batches = await one.batches(list(world.log().runs()))
        locator = await one.merge()
        await damage(one, locator, 3)
        for n, batch in enumerate(batches):
            part = await world.one("t", 0, batch.base_offset)
            if n == 3:
                assert part.error_code == ErrorCode.CORRUPT_MESSAGE
                continue
            found = list(walk(memoryview(records_of(part))))
            expected = batches[n:3] if n < 3 else batches[n:]
            assert [one.base_offset for one in found] == [one.base_offset for one in expected]
        assert {"fetch.batch_damaged", "fetch.damaged_batch_passed"} <= set(world.alarms)
        assert (await world.offset(NOW_MS)).error is ErrorCode.NONE


@each_kind
async def test_a_missing_segment_is_an_error_and_an_alarm(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        await produce(one.world, 1)
        locator = await one.merge()
        await one.store.delete([locator])
        part = await one.world.one("t", 0, 0)
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "fetch.object_missing" in one.world.alarms


@each_kind
async def test_a_segment_without_its_index_is_served(kind: str, tmp_path: Path) -> None:
    async with merging(kind, tmp_path) as one:
        await produce(one.world, 1)
        whole = await one.everything()
        locator = await one.merge()
        await one.blobs.delete([index_locator(locator)])
        assert await one.everything() == whole


async def test_runs_of_a_far_segment_are_read_once_and_ahead() -> None:
    blobs = SlowBlobs(MemoryBlobs())
    store = WalAndSegments(ObjectSegments(blobs), SegmentBlobs(blobs))
    async with reading_world(segments=store, produce_to_cache=False, cache_bytes=256 * MIB) as world:
        await world.create()
        one = Merging(world, store, blobs)
        for _ in range(24):
            await world.produce(batch_of(bytes(MIB - 200)))
        locator = await one.merge()
        runs = list(world.log().runs())
        assert len(runs) == 6 and {run.size // MIB for run in runs} == {3}
        blobs.gets.clear()
        whole = await asyncio.gather(*(one.everything() for _ in range(3)))
        assert len(set(whole)) == 1
        # Each once, for all readers.
        assert sorted(blobs.gets) == [(locator, run.start, run.size) for run in runs]
        objects = world.fetch_service.reader.objects
        assert objects is not None and objects.counts.ahead > 0
