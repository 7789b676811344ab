"""The driver of one merge job on Spark, over a ledger that is made up while it is read: for its memory.

`python -m tests.support.spark_driver DIRECTORY MASTER BATCHES` merges so many batches, each a run of its own,
and prints one line of JSON: what was merged, and the peak memory of this process and of its Java. Objects are
files below DIRECTORY that share their bytes, so that a million batches are some thousand links.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from adapters.open import BLOBS_DIRECTORY
from ledger.batch.records import Record, build_batch
from ledger.errors import ErrorName
from ledger.keys import uuid7
from ledger.objects.uploads import ObjectKind
from ledger.swaps.requests import Pinned, Swapped, SwapSegments
from ledger.types import TopicId
from pipeline.engines.process import max_rss_bytes
from pipeline.engines.spark_context import SparkPlace, java_pid, spark_context
from pipeline.engines.spark_rounds import SparkRounds, SparkStore
from pipeline.messages import Failure, FoundRun, FoundRuns, TopicDescription
from pipeline.peer import RUNS_A_PAGE
from pipeline.segments import Engine, Host, MergeJob
from tests.support.spark_cluster import JOB_CONF

PARTITIONS: Final = 64
OBJECT_RUNS: Final = 500
WAVE_RUNS: Final = 50_000
WAVE_BYTES: Final = 8 * 1024 * 1024 * 1024
BEGUN_MS: Final = 1_700_000_000_000
NO_FAILURE: Final = Failure(ErrorName.NONE)


class LedgerOfManyRuns:
    """A gateway as a merge job speaks to it: partitions of one topic with the same number of runs each, of
    which a swap only counts that it was requested."""

    def __init__(self, directory: Path, batches: int) -> None:
        self.topic = TopicId(bytes([1] * 16))
        self.swapped_runs = 0
        self._runs = batches // PARTITIONS
        self._versions = [1] * PARTITIONS
        self._batch = bytes(build_batch([Record(0, 0, b"k", b"v" * 40, ())], base_timestamp=BEGUN_MS))
        self._blobs = directory / BLOBS_DIRECTORY
        self._make_objects()

    def topics(self) -> Iterator[TopicDescription]:
        yield TopicDescription(self.topic, "t", PARTITIONS)

    def find_batches(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        end = min(offset + RUNS_A_PAGE, self._runs)
        runs = [self._run(partition, at) for at in range(offset, end)]
        return FoundRuns(NO_FAILURE, self._versions[partition], 0, self._runs, runs)

    def swap(self, swap: SwapSegments) -> Swapped:
        self.swapped_runs += swap.last - swap.first + 1
        self._versions[swap.partition] += 1
        return Swapped(self._versions[swap.partition], 0)

    def pin(self, job: bytes) -> Pinned:
        return Pinned(1, BEGUN_MS + 3_600_000)

    def release(self, job: bytes) -> None:
        pass

    def _run(self, partition: int, at: int) -> FoundRun:
        locator = self._locator(partition, at // OBJECT_RUNS)
        size = len(self._batch)
        return FoundRun(locator, ObjectKind.WAL, at % OBJECT_RUNS * size, size, at, at, BEGUN_MS)

    def _locator(self, partition: int, number: int) -> str:
        return f"wal/0/{uuid7(BEGUN_MS, (partition << 32 | number).to_bytes(10, 'big'))}"

    def _make_objects(self) -> None:
        first = self._blobs / self._locator(0, 0)
        first.parent.mkdir(parents=True)
        first.write_bytes(self._batch * OBJECT_RUNS)
        for partition in range(PARTITIONS):
            for number in range(self._runs // OBJECT_RUNS + 1):
                path = self._blobs / self._locator(partition, number)
                if path != first:
                    path.hardlink_to(first)


def main(directory: Path, master: str, batches: int) -> None:
    peer = LedgerOfManyRuns(directory, batches)
    began_s = time.monotonic()
    with spark_context(SparkPlace(master, JOB_CONF)) as context:
        context.setLogLevel("ERROR")
        with closing(SparkRounds(context, SparkStore(f"objects+file:{directory}", {}))) as rounds:
            engine = Engine(rounds, PARTITIONS, WAVE_BYTES, WAVE_RUNS)
            totals = MergeJob(peer, engine, Host(time.monotonic, os.urandom)).run()
        found = {
            "runs": totals.runs,
            "segments": totals.segments,
            "took_s": round(time.monotonic() - began_s, 1),
            "python_bytes": max_rss_bytes(),
            "java_bytes": max_rss_bytes(java_pid(context)),
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
