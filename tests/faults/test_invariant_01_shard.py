"""Invariant 1 for a shard: image, snapshots, archive, pruning and journal, cut off at any sync point."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapters.blobs.files import FileBlobs
from adapters.images.sqlite import SqliteImage
from adapters.metadata.sqlite import SqliteMetadata
from gateway.coordination.shard import Shard
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.errors import StoreError
from ledger.keys import uuid7
from ledger.partitions.requests import CommitBatch, CommitFile, Committed, FileCommit
from ledger.topics.requests import Created, CreateTopic
from ledger.types import TopicId
from tests.faults.powercut import Survival, cut_time_ns, sample, sync_points, trees_at, write_tree
from tests.faults.recording import Recording
from tests.support.shards import open_shard

ROOT = Path(__file__).parents[2]
TOPIC_ID = TopicId(bytes(15) + b"\1")
PARTITIONS = 3
BATCH_BYTES = 100
MAX_CUTS = 40
LIVES, COMMITS = 3, 60


@dataclass(frozen=True, slots=True)
class Stores:
    shard: Shard
    blobs: FileBlobs
    image: SqliteImage


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[Stores]:
    metadata, blobs = SqliteMetadata(root / "metadata.db"), FileBlobs(root / "blobs")
    image = SqliteImage(root / "image")
    try:
        shard = await open_shard(metadata, blobs, image, 1, lambda: time.time_ns() // 1_000_000)
        try:
            yield Stores(shard, blobs, image)
        finally:
            await shard.close()
    finally:
        await image.close()
        await blobs.close()
        await metadata.close()


async def live(root: Path, acks: Path) -> None:
    """What the recorded process does: commits, and now and then all that a checkpoint may be."""
    with acks.open("w") as lines:
        for life in range(LIVES):
            async with opened(root) as stores:
                await work(stores, life, lines)


async def work(stores: Stores, life: int, lines: Any) -> None:
    clock = stores.shard.replica.clock
    checkpointer = Checkpointer(stores.shard, stores.image, stores.blobs, SnapshotRule(1), clock)
    deadline = asyncio.get_running_loop().time() + 60
    if life == 0:
        result = await stores.shard.ask(CreateTopic("t", TOPIC_ID, PARTITIONS, {}), deadline)
        assert isinstance(result, Created)
        print(json.dumps([time.monotonic_ns(), "t"]), file=lines)
    locator = ""
    for number in range(COMMITS):
        if number % 10 == 0:
            locator = f"wal/0/{uuid7(clock(), bytes(8) + bytes([life, number]))}.wal"
        commit = commit_of(locator, number % 10)
        result = await stores.shard.ask(commit, deadline)
        at_ns = time.monotonic_ns()
        assert isinstance(result, FileCommit)
        for batch, committed in zip(commit.batches, result.results, strict=True):
            assert isinstance(committed, Committed)
            print(
                json.dumps([at_ns, locator, number % 10, batch.partition, committed.base_offset]), file=lines
            )
        if number % 7 == 3:
            await checkpointer.write_image()
        if number % 20 == 15:
            await checkpointer.snapshot()
            await checkpointer.prune()
    assert life == 0 or await stores.shard.journal.start() > 0


def commit_of(locator: str, number: int) -> CommitFile:
    """The n-th draft of an object: one batch of two records a partition."""
    first = number * PARTITIONS
    batches = [
        CommitBatch(TOPIC_ID, at, (first + at) * BATCH_BYTES, BATCH_BYTES, 2, 1, 0, -1, -1, -1)
        for at in range(PARTITIONS)
    ]
    return CommitFile(locator, (first + PARTITIONS) * BATCH_BYTES, batches)


async def missing(root: Path, acks: Sequence[list[Any]]) -> list[str]:
    """Results that the shard no longer returns for a repeat."""
    async with opened(root) as stores:
        state = stores.shard.state
        if acks and "t" not in state.topics.by_name:
            return ["topic t"]
        wrong = []
        for _, locator, number, partition, base in acks[1:]:
            log = state.topics.by_name["t"].partitions[partition]
            start = (number * PARTITIONS + partition) * BATCH_BYTES
            # Batches of other partitions lie between, so each is a run of its own.
            found = [(state.objects.locator(run.object_number), run.start) for run in log.find(base, 1)]
            if found != [(locator, start)]:
                wrong.append(f"{locator} {number} {partition} at {base}: {found}")
        deadline = asyncio.get_running_loop().time() + 10
        for _, locator, number, partition, base in acks[1:][-PARTITIONS:]:
            result = await stores.shard.ask(commit_of(locator, number), deadline)
            assert isinstance(result, FileCommit)
            if result.results[partition] != Committed(base, 0, True):
                wrong.append(f"{locator} {number} {partition} at {base}, repeated: {result.results}")
        return wrong


async def problems(
    recording: Recording, directory: Path, survival: Survival, ignore_sync: str = ""
) -> list[str]:
    acks_path = directory / "acks"
    script = (
        f"import asyncio, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from tests.faults.test_invariant_01_shard import live\n"
        f"asyncio.run(live(Path({str(recording.root)!r}), Path({str(acks_path)!r})))"
    )
    events = recording.run([sys.executable, "-c", script], ignore_sync)
    acks = [json.loads(line) for line in acks_path.read_text().splitlines()]
    assert len(acks) == 1 + LIVES * COMMITS * PARTITIONS
    points = sync_points(events)
    cuts = [*sample(points, MAX_CUTS), len(events)]
    found: list[str] = []
    for cut, tree in trees_at(events, cuts, survival):
        root = directory / f"cut{cut}"
        write_tree(tree, root)
        known = [ack for ack in acks if ack[0] < cut_time_ns(events, cut)]
        try:
            found += [f"cut {cut}: {problem}" for problem in await missing(root, known)]
        except StoreError as error:
            found.append(f"cut {cut}: {error}")
    return found


@pytest.mark.parametrize("survival", list(Survival))
async def test_a_shard_keeps_every_result_after_a_power_cut(
    survival: Survival, recording: Recording, scratch: Path
) -> None:
    assert await problems(recording, scratch, survival) == []


@pytest.mark.parametrize("ignore_sync", ["files", "directories"])
async def test_without_its_syncs_a_shard_would_forget_results(
    ignore_sync: str, recording: Recording, scratch: Path
) -> None:
    assert await problems(recording, scratch, Survival.NOTHING, ignore_sync) != []
