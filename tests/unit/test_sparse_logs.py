"""Files of a local log of which little is live are found, merged, and free the disk."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from gateway.housekeeping import sparse_logs
from gateway.housekeeping.sparse_logs import SparseLogs
from ledger.keys import index_locator, is_log, segment_locator
from ledger.merging.found import FoundRun, RunPage
from ledger.merging.merge import JobAttempt, swap_of
from ledger.merging.plan import MergePolicy, PartitionPlanner
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.swaps.requests import Pinned, ReleasePin, SegmentFile, Swapped, TakePin
from ledger.topics.requests import CreateTopic
from ledger.types import Position
from pipeline.carrying import merged_parts
from tests.support.journalled import topic_id
from tests.support.placing import batch_of
from tests.unit.test_local_log_life import GRACE_MS, LocalLife, loop_time

A_FILE: Final = 4
"""So many batches of the life fill a file of 4 MiB."""
JOBS: Final = count(1)


class SparseLife(LocalLife):
    """Large records in partition 0, of which what is kept is in partition 1."""

    async def open(self) -> "SparseLife":
        await super().open()
        self.sparse = SparseLogs(self.shard, self.store)
        return self

    async def keep(self, size: int = 100) -> str:
        """A record that stays. Returns the file that it is in."""
        assert isinstance(await self.result(self.send(batch_of("k" * size), partition=1)), int)
        log = self.log(1)
        (run,) = log.find(log.high_watermark - 1, 1)
        return self.shard.state.objects.by_number[run.object_number].locator

    async def delete_large(self) -> None:
        await self.shard.submit(DeleteRecords(topic_id(1), 0, -1))
        await self.shard.submit(DrainRuns(1000))
        self.written.clear()

    async def merge(self, sparse: frozenset[str]) -> int:
        """As a job that was given these. Returns how many runs it has merged."""
        job = next(JOBS).to_bytes(16, "big")
        assert isinstance(await self.shard.submit(TakePin(job)), Pinned)
        merged = 0
        for log in self.shard.state.topics.by_name["t"].partitions[:]:
            planner = PartitionPlanner(log.topic_id, log.index, MergePolicy(sparse=sparse), self.clock())
            for task in planner.feed(self.page(log)):
                found = await self.store.read(
                    [Position(run.locator, run.start, run.size) for run in task.runs]
                )
                parts = merged_parts(task, found, self.clock(), pytest.fail, without_missing=False)
                for part in parts:
                    first, noise = task.runs[part.begin].base, next(JOBS).to_bytes(10, "big")
                    where = segment_locator(log.topic_id, log.index, first, self.clock(), noise)
                    await self.segment_blobs.put(index_locator(where), [part.segment.index])
                    await self.segment_blobs.put(where, part.segment.buffers)
                    stored = SegmentFile(where, part.segment.size)
                    swap = swap_of(task, part.segment.runs, stored, JobAttempt(job, 1), log.layout_version)
                    assert isinstance(await self.shard.submit(swap), Swapped)
                merged += len(task.runs)
        await self.shard.submit(ReleasePin(job))
        return merged

    def page(self, log: PartitionLog) -> RunPage:
        objects = self.shard.state.objects.by_number
        runs = [
            FoundRun(
                objects[run.object_number].locator,
                objects[run.object_number].kind,
                *(run.start, run.size, run.base, run.last, run.max_timestamp),
            )
            for run in log.runs_from(log.log_start)
        ]
        return RunPage(log.layout_version, log.log_start, log.high_watermark, runs)

    def on_disk_locators(self) -> set[str]:
        return {str(path.relative_to(self.directory)) for path in self.on_disk()}


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[SparseLife]:
    made = await SparseLife(directory=tmp_path).open()
    yield made
    await made.close()


async def test_one_record_that_is_kept_makes_its_file_sparse_once_the_others_have_gone(
    life: SparseLife,
) -> None:
    kept = await life.keep()
    await life.produce(2 * A_FILE)
    assert await life.sparse.find() == frozenset()
    await life.delete_large()
    assert await life.sparse.find() == {kept}
    assert await life.sparse.find() == {kept}, "what was counted is kept"


async def test_a_merge_of_a_sparse_file_frees_it_and_the_record_reads_the_same(life: SparseLife) -> None:
    kept = await life.keep()
    await life.produce(2 * A_FILE)
    await life.delete_large()
    before = await life.stored(1)
    assert await life.merge(frozenset()) == 0, "nothing else makes it due"
    # The last run of the partition, too: no other comes into that file.
    assert await life.merge(await life.sparse.find()) == 1
    assert kept in life.on_disk_locators()
    life.clock.now_ms += 2 * GRACE_MS
    for _ in range(2):
        await life.checkpointer.snapshot()
        await life.checkpointer.prune()
    await life.garbage.sweep(loop_time)
    assert kept not in life.on_disk_locators()
    await life.begin_again()
    ((base, data),) = await life.stored(1)
    assert (base, bytes(data)[61:]) == (0, bytes(before[0][1])[61:])
    assert await life.sparse.find() == frozenset()


async def test_a_file_with_enough_that_is_live_and_the_one_that_is_written_are_not_found(
    life: SparseLife,
) -> None:
    full = await life.keep(900_000)
    await life.produce(2 * A_FILE)
    await life.delete_large()
    active = await life.keep()
    assert active != full
    assert await life.sparse.find() == frozenset()


async def test_the_bound_is_a_fifth_of_the_file(life: SparseLife, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = await life.keep(500_000)
    await life.produce(2 * A_FILE)
    await life.delete_large()
    (size,) = [stored.size for stored in await life.store.objects() if stored.locator == kept]
    (run,) = life.log(1).runs()
    monkeypatch.setattr(sparse_logs, "SPARSE_SHARE", run.size / size)
    assert await life.sparse.find() == frozenset()
    monkeypatch.setattr(sparse_logs, "SPARSE_SHARE", (run.size + 1) / size)
    assert await life.sparse.find() == {kept}


async def test_entries_behind_the_last_batch_count_as_what_is_not_live(life: SparseLife) -> None:
    kept = await life.keep(10_000)
    for number in range(20):
        configs = {"x": f"{number}" + "c" * 300_000}
        await life.shard.submit(CreateTopic(f"other-{number}", topic_id(10 + number), 1, configs))
    await life.keep()
    (stored,) = [each for each in await life.store.objects() if each.locator == kept]
    assert life.shard.state.objects.by_locator[kept].size < 20_000 < stored.size
    assert await life.sparse.find() == {kept}


async def test_small_files_are_left_as_they_are(life: SparseLife) -> None:
    """As those of a gateway that is started again and again."""
    for _ in range(3):
        await life.keep()
        await life.produce(1)
        await life.begin_again()
    await life.delete_large()
    await life.keep()
    files = [stored.locator for stored in await life.store.objects() if is_log(stored.locator)]
    assert len(files) == 4 and await life.sparse.find() == frozenset()


async def test_what_is_lost_after_a_count_is_counted_again(life: SparseLife) -> None:
    kept = await life.keep()
    await life.produce(2 * A_FILE)
    assert await life.sparse.find() == frozenset()
    first = life.log(0).runs()
    await life.shard.submit(DeleteRecords(topic_id(1), 0, next(first).last + 1))
    await life.shard.submit(DrainRuns(1000))
    assert await life.sparse.find() == frozenset()
    await life.delete_large()
    assert await life.sparse.find() == {kept}
