"""A gateway's journal, batches and housekeeping over the files of a local log: they are written, die, and are
used again, while what is live stays, through restarts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.local_log.opening import LocalLog, open_local_log
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.coordination import opening
from gateway.coordination.shard import Shard
from gateway.fetch.cache import RunCache
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.produce.service import ProduceOptions, ProduceService
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.topics.requests import CreateTopic
from ledger.types import Position
from tests.support.embedded import WAIT_S, Clock
from tests.support.journalled import topic_id
from tests.support.placing import PlacingWorld, batch_of

ROLL_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 900_000
GRACE_MS = 60_000
MOST = 1 << 60


@dataclass
class LocalLife(PlacingWorld):
    """One process after the other over a directory; snapshots in memory that outlives them."""

    directory: Path = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock = Clock()
        self.blobs = MemoryBlobs()
        self.segment_blobs = MemoryBlobs()
        self.written: dict[int, bytes] = {}
        """By base offset."""

    async def open(self) -> "LocalLife":
        self.log_files: LocalLog = open_local_log(self.directory, roll_bytes=ROLL_BYTES, clock=self.clock)
        segments = SegmentBlobs(self.segment_blobs)
        self.store = WalAndSegments(MemorySegments(), segments, logs=self.log_files.wal)
        journal = self.log_files.journal
        self.shard: Shard = await opening.open_shard(journal, self.blobs, None, 1, self.clock)
        if "t" not in self.shard.state.topics.by_name:
            await self.shard.submit(CreateTopic("t", topic_id(1), 2, {}))
        self.cache = RunCache(1)
        self.service = ProduceService(
            self.shard, self.store, ProduceOptions(1 << 20, 100, 3), self.clock, self.cache
        )
        self.checkpointer = Checkpointer(self.shard, None, self.blobs, SnapshotRule(MOST), self.clock)
        await self.checkpointer.start()
        self.garbage = GarbageCollector(self.shard, self.store, GRACE_MS, self.clock, WAIT_S)
        return self

    async def close(self) -> None:
        await super().close()
        await self.log_files.close()

    async def begin_again(self) -> None:
        await self.close()
        await self.open()

    async def produce(self, count: int) -> None:
        for _ in range(count):
            data = batch_of(f"{len(self.written)} " + "x" * BATCH_BYTES)
            base = await self.result(self.send(data))
            assert isinstance(base, int)
            self.written[base] = data

    async def forget_all(self) -> None:
        """Records and entries are over, and the grace."""
        await self.shard.submit(DeleteRecords(topic_id(1), 0, -1))
        await self.shard.submit(DrainRuns(1000))
        self.written.clear()
        self.clock.now_ms += 2 * GRACE_MS
        for _ in range(2):
            await self.checkpointer.snapshot()
            await self.checkpointer.prune()
        await self.garbage.sweep(loop_time)

    def on_disk(self) -> list[Path]:
        return list(self.directory.rglob("*.log"))

    def where(self) -> list[Position]:
        runs = self.log().find(self.log().log_start, MOST, MOST)
        return [self.position(run.object_number, run.start, run.size) for run in runs]

    async def check(self) -> None:
        """All that is live is as it was sent."""
        bases = sorted(self.written)
        data = await self.store.read(self.where())
        assert [None if one is None else bytes(one) for one in data] == [self.written[base] for base in bases]


def loop_time() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[LocalLife]:
    made = await LocalLife(directory=tmp_path).open()
    yield made
    await made.close()


async def test_files_are_used_again_and_what_was_in_them_is_not_found(life: LocalLife) -> None:
    await life.produce(12)
    await life.check()
    before, locators = life.where(), {position.locator for position in life.where()}
    assert len(locators) >= 3
    await life.forget_all()
    gone = locators - {stored.locator for stored in await life.store.objects()}
    assert len(gone) == len(locators) - 1, "all but the one that is written"
    found = await life.store.read(before)
    assert all(data is None for position, data in zip(before, found, strict=True) if position.locator in gone)
    assert not gone & life.shard.state.objects.by_locator.keys()
    await life.produce(12)
    await life.check()
    assert not gone & {position.locator for position in life.where()}


async def test_the_directory_does_not_grow_with_what_went_through_it(life: LocalLife) -> None:
    most = 0
    for number in range(5):
        await life.produce(9)
        await life.check()
        most = max(most, len(life.on_disk()))
        await life.forget_all()
        if number % 2:
            await life.begin_again()
            await life.check()
    await life.produce(9)
    await life.check()
    # 3 files of 4 MiB have 9 batches; others are ahead, or begun by a restart.
    assert max(most, len(life.on_disk())) <= 5


async def test_a_live_record_keeps_its_file_and_entries_that_are_pruned_keep_none(life: LocalLife) -> None:
    kept = batch_of("kept")
    assert await life.result(life.send(kept, partition=1)) == 0
    await life.produce(9)
    await life.forget_all()
    await life.begin_again()
    await life.produce(9)
    await life.forget_all()
    assert [data for _, data in await life.stored(1)] == [kept]
    assert len(life.shard.state.objects.by_number) <= 2, "more than the file of the one record and the last"
    await life.begin_again()
    assert [data for _, data in await life.stored(1)] == [kept]
