"""Writes a data directory whose ledger holds many runs, through the product's own shard and image.

The objects that the runs name do not exist: nothing reads them. Run as a process of its own, so that its
memory and garbage are not the bench's: `python -m bench.ledger_files DIRECTORY RUNS PARTITIONS SOURCE`.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from adapters.open import IMAGE_FILE, METADATA_FILE, open_blobs, open_image, open_journal, open_metadata
from bench.synthetic import BATCHES, commit, new_locator, topic_id
from gateway.coordination.opening import open_shard
from gateway.coordination.shard import Shard
from gateway.host import clock_ms
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.partitions.requests import FileCommit
from ledger.topics.requests import Created, CreateTopic
from tests.support.versions import ROOT

IMAGE, SNAPSHOT, JOURNAL = "image", "snapshot", "journal"
"""What the next start reads: an image or a snapshot up to the last entry, or only journal entries."""
TIMEOUT_S = 900.0
DRAFTS_AN_OBJECT = 10


def write_ledger(directory: Path, runs: int, partitions: int, source: str) -> None:
    """Errors: CalledProcessError with the writer's words on standard error."""
    directory.mkdir(parents=True)
    words = [sys.executable, "-m", "bench.ledger_files", str(directory), str(runs), str(partitions), source]
    subprocess.run(words, cwd=ROOT, check=True, timeout=TIMEOUT_S)


async def _write(directory: Path, runs: int, partitions: int, source: str) -> None:
    store = open_metadata(f"sqlite:{directory / METADATA_FILE}")
    blobs = open_blobs(f"file:{directory}")
    image = open_image(f"sqlite:{directory / IMAGE_FILE}") if source == IMAGE else None
    shard = await open_shard(open_journal(store), blobs, image, 1, clock_ms)
    await _fill(shard, runs, partitions)
    checkpointer = Checkpointer(shard, image, blobs, SnapshotRule(1 << 40), clock_ms)
    if source == IMAGE:
        await checkpointer.write_image()
    elif source == SNAPSHOT:
        await checkpointer.snapshot()
    await shard.close()
    if image is not None:
        await image.close()
    await blobs.close()
    await store.close()
    assert sum(log.run_count for log in shard.state.logs.values()) == runs


async def _fill(shard: Shard, runs: int, partitions: int) -> None:
    created = await shard.submit(CreateTopic("many-runs", topic_id(0), partitions, {}))
    assert isinstance(created, Created), created
    locator, sequences, start = "", [0] * partitions, 0
    for number, first in enumerate(range(0, runs, BATCHES)):
        if number % DRAFTS_AN_OBJECT == 0:
            locator, start = new_locator(clock_ms(), os.urandom), 0
        count = min(BATCHES, runs - first)
        request, start = commit(locator, start, first, count, sequences, clock_ms())
        result = await shard.submit(request)
        assert isinstance(result, FileCommit), result


if __name__ == "__main__":
    asyncio.run(_write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
