"""Merge jobs on a real Spark of this machine, over a double of the gateway whose objects are on disk."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import StoreError, StoreUnavailable
from ledger.merging.plan import MergePolicy
from ledger.merging.reads import FAR
from ledger.requests import Refused
from ledger.swaps.requests import SwapSegments
from pipeline.engines.spark_context import SparkPlace, spark_context
from pipeline.engines.spark_layout import LayoutRule
from pipeline.engines.spark_rounds import SparkRounds, SparkStore
from pipeline.rounds import MergeTotals
from pipeline.segments import Engine, Host, MergeJob
from tests.support.merge_peer import MergePeer
from tests.support.merge_peer_on_disk import peer_on_disk
from tests.support.processes import descendants
from tests.support.spark import JAVA_OPTIONS, why_no_spark

DIRECT = LayoutRule(group_bytes=4096, min_group_bytes=1)
SHUFFLED = LayoutRule(FAR, is_billed=True, group_bytes=4096, min_group_bytes=1, spared_read_bytes=2**40)
QUICK = {"spark.driver.extraJavaOptions": JAVA_OPTIONS}
POLICY = MergePolicy(due_runs=10, task_bytes=4096)


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with spark_context(SparkPlace("local[2,4]", QUICK)) as context:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "a driver of a command ignores Ctrl-C"
            context.setLogLevel("OFF")
            signal.signal(signal.SIGINT, before)
            yield context
    finally:
        signal.signal(signal.SIGINT, before)


def merged(peer: MergePeer, context: Any, url: str, rule: LayoutRule) -> MergeTotals:
    """What a job has done."""
    with closing(SparkRounds(context, SparkStore(url, {}), rule)) as rounds:
        return MergeJob(peer, Engine(rounds), Host(peer.elapsed_s, os.urandom), POLICY).run()


@pytest.mark.parametrize("rule", [DIRECT, SHUFFLED], ids=["direct", "shuffled"])
def test_all_runs_but_the_tail_become_segments_with_the_same_records(
    context: Any, tmp_path: Path, rule: LayoutRule
) -> None:
    peer, objects = peer_on_disk(tmp_path / "data", partitions=3)
    peer.fill(200)
    before = {key: peer.records_of(*key) for key in peer.parts}
    totals = merged(peer, context, objects.url, rule)
    assert {key: peer.records_of(*key) for key in peer.parts} == before
    assert (totals.partitions, totals.runs, totals.again, totals.orphans) == (3, 3 * 199, 0, 0)
    assert totals.segments == len(peer.swaps) > 9
    assert totals.read_bytes == totals.run_bytes
    assert totals.shuffled_bytes == (totals.run_bytes if rule is SHUFFLED else 0)
    assert totals.reads == 199 if rule is SHUFFLED else totals.reads > 199
    assert not peer.pins
    assert merged(peer, context, objects.url, rule).runs == 0


@pytest.mark.parametrize("rule", [DIRECT, SHUFFLED], ids=["direct", "shuffled"])
def test_what_a_killed_executor_was_at_is_done_again(context: Any, tmp_path: Path, rule: LayoutRule) -> None:
    peer, objects = peer_on_disk(tmp_path / "data", partitions=4)
    peer.fill(400)
    before = {key: peer.records_of(*key) for key in peer.parts}
    killed: list[int] = []

    def kill_workers(_: SwapSegments) -> Refused | None:
        if len(peer.swaps) in (2, 6):
            workers = [each.pid for each in descendants(os.getpid()) if "pyspark.daemon" in each.command]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            killed.extend(workers)
        return None

    peer.before_swap = kill_workers
    totals = merged(peer, context, objects.url, rule)
    assert killed
    assert {key: peer.records_of(*key) for key in peer.parts} == before
    assert totals.runs == 4 * 399
    named = {run.object_key for part in peer.parts.values() for run in part.runs}
    assert named <= set(objects)


def test_runs_that_another_job_has_merged_meanwhile_are_planned_again(context: Any, tmp_path: Path) -> None:
    peer, objects = peer_on_disk(tmp_path / "data", partitions=2)
    peer.fill(150)
    before = {key: peer.records_of(*key) for key in peer.parts}

    def merge_first(_: SwapSegments) -> Refused | None:
        peer.before_swap = lambda _: None
        merged(peer, context, objects.url, DIRECT)
        return None

    peer.before_swap = merge_first
    totals = merged(peer, context, objects.url, DIRECT)
    assert totals.again > 0 and totals.orphans > 0
    assert {key: peer.records_of(*key) for key in peer.parts} == before


def test_a_missing_object_is_damage_only_after_some_looks(context: Any, tmp_path: Path) -> None:
    peer, objects = peer_on_disk(tmp_path / "data")
    locators = [peer.flush([(topic, partition, 2) for topic, partition in peer.parts]) for _ in range(60)]
    del objects[locators[30]]
    totals = merged(peer, context, objects.url, DIRECT)
    assert totals.again == 3
    assert totals.left_runs == 1 and locators[30] in totals.damages[0]
    assert totals.runs == 58


def test_a_store_that_executors_do_not_reach_ends_the_job_with_its_sentence(
    context: Any, tmp_path: Path
) -> None:
    peer, _ = peer_on_disk(tmp_path / "data")
    peer.fill(50)
    with pytest.raises(StoreError, match="there is no data of a gateway in"):
        merged(peer, context, f"objects+file:{tmp_path / 'elsewhere'}", DIRECT)
    assert not peer.swaps and not peer.pins


def test_more_tasks_than_cores_are_swapped_in_as_soon_as_they_are_there(context: Any, tmp_path: Path) -> None:
    """The gateway gets the first swap before the last segment is written."""
    peer, objects = peer_on_disk(tmp_path / "data", partitions=2)
    peer.fill(400)
    written_at_first: list[int] = []

    def count(_: SwapSegments) -> Refused | None:
        written_at_first.append(sum(1 for key in objects if key.endswith(".kfs")))
        return None

    peer.before_swap = count
    totals = merged(peer, context, objects.url, DIRECT)
    assert totals.segments > 12
    assert written_at_first[0] < totals.segments


class SlowToSubmit:
    """A Spark of which one job fails, while the others have not reached Spark yet when they are cancelled for
    the first time. They have no end."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._cancelled = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def runJob(self, _rdd: Any, _function: Any, partitions: list[int]) -> Any:
        if partitions == [0]:
            raise StoreUnavailable("the bucket is out of reach")
        assert self._cancelled.wait(60.0)
        return self._context.runJob(self._context.parallelize([0], 1), without_end)

    def cancelAllJobs(self) -> None:
        self._context.cancelAllJobs()
        self._cancelled.set()


def without_end(_: Any) -> list[int]:
    time.sleep(3600.0)
    return []


@pytest.mark.timeout(120)
def test_a_job_that_fails_leaves_none_of_its_spark_jobs_behind(context: Any, tmp_path: Path) -> None:
    peer, objects = peer_on_disk(tmp_path / "data", partitions=2)
    peer.fill(150)
    with pytest.raises(StoreUnavailable):
        merged(peer, SlowToSubmit(context), objects.url, DIRECT)
    assert not context.statusTracker().getActiveJobsIds()
    assert not peer.swaps and not peer.pins
