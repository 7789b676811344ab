"""Merge jobs on a standalone Spark cluster whose executors, Pythons and workers are killed, over a double of
the gateway whose objects are on disk."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

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
from tests.support.merge_peer_on_disk import ObjectFiles, peer_on_disk
from tests.support.spark import why_no_spark
from tests.support.spark_cluster import JOB_CONF, OTHER_HOSTS, SparkCluster, running_spark_cluster
from tests.support.versions import ROOT

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

MERGE_S: Final = 3600.0
DIRECT: Final = LayoutRule(group_bytes=4096, min_group_bytes=1)
SHUFFLED: Final = LayoutRule(
    FAR, is_billed=True, group_bytes=4096, min_group_bytes=1, spared_read_bytes=2**40
)
RULES: Final = pytest.mark.parametrize("rule", [DIRECT, SHUFFLED], ids=["direct", "shuffled"])
POLICY: Final = MergePolicy(due_runs=10, task_bytes=4096)
SECOND_ATTEMPTS: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    # A stage of one task has no others to compare it with.
    "spark.speculation.task.duration.threshold": "2s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    with running_spark_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@contextmanager
def context_on(cluster: SparkCluster, conf: dict[str, str] | None = None) -> Iterator[Any]:
    with spark_context(SparkPlace(cluster.url, {**JOB_CONF, **(conf or {})})) as context:
        context.setLogLevel("ERROR")
        yield context


def merged(peer: MergePeer, context: Any, objects: ObjectFiles, rule: LayoutRule) -> MergeTotals:
    """What a job has done."""
    with closing(SparkRounds(context, SparkStore(objects.url, {}), rule)) as rounds:
        return MergeJob(peer, Engine(rounds), Host(peer.elapsed_s, os.urandom), POLICY).run()


def kill_executor(cluster: SparkCluster) -> bool:
    return cluster.kill_executor()


def kill_all_executors(cluster: SparkCluster) -> bool:
    return all([cluster.kill_executor(0), cluster.kill_executor(1)])


def kill_python(cluster: SparkCluster) -> bool:
    return cluster.kill_python()


def kill_worker(cluster: SparkCluster) -> bool:
    """And its executor. It is back after a while."""
    cluster.kill_worker(1)
    threading.Thread(target=cluster.start_worker, args=(1,), daemon=True).start()
    return True


@pytest.mark.parametrize("kill", [kill_executor, kill_all_executors, kill_python, kill_worker])
@RULES
def test_what_a_killed_process_was_at_is_done_again(
    cluster: SparkCluster, tmp_path: Path, kill: Callable[[SparkCluster], bool], rule: LayoutRule
) -> None:
    peer, objects = peer_on_disk(tmp_path / "data", partitions=4)
    peer.fill(400)
    before = {key: peer.records_of(*key) for key in peer.parts}
    kills: list[bool] = []

    def kill_now(_: SwapSegments) -> Refused | None:
        if len(peer.swaps) in (2, 20):
            kills.append(kill(cluster))
        return None

    peer.before_swap = kill_now
    with context_on(cluster) as context:
        totals = merged(peer, context, objects, rule)
    assert kills[0]
    assert {key: peer.records_of(*key) for key in peer.parts} == before
    assert totals.runs == 4 * 399 and not totals.damages and not totals.left_runs
    named = {run.object_key for part in peer.parts.values() for run in part.runs}
    assert named <= set(objects)


@pytest.mark.skipif(not OTHER_HOSTS, reason="the second worker needs an address of its own")
@RULES
def test_a_second_attempt_of_a_task_does_what_the_first_is_slow_at(
    cluster: SparkCluster, tmp_path: Path, rule: LayoutRule
) -> None:
    """The Python of one executor stands still until the job has ended, and then goes on."""
    peer, objects = peer_on_disk(tmp_path / "data", partitions=4)
    peer.fill(400)
    before = {key: peer.records_of(*key) for key in peer.parts}
    stopped: list[int] = []

    def stop_python(_: SwapSegments) -> Refused | None:
        if not stopped:
            executor, *_others = cluster.executors()
            stopped.extend(each.pid for each in cluster.pythons_of(executor.pid))
            signal_all(stopped, signal.SIGSTOP)
        return None

    peer.before_swap = stop_python
    try:
        with context_on(cluster, SECOND_ATTEMPTS) as context:
            totals = merged(peer, context, objects, rule)
            signal_all(stopped, signal.SIGCONT)
            again = merged(peer, context, objects, rule)
    finally:
        signal_all(stopped, signal.SIGKILL)
    assert stopped
    assert {key: peer.records_of(*key) for key in peer.parts} == before
    assert totals.runs == 4 * 399 and again.runs == 0


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def driver_memory(cluster: SparkCluster, directory: Path, batches: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.support.spark_driver", str(directory), cluster.url, str(batches)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=MERGE_S, check=True, cwd=ROOT)
    found: dict[str, int] = json.loads(done.stdout)
    print(f"{batches} batches: {found}")  # noqa: T201
    return found


@pytest.mark.timeout(7200)
def test_a_driver_needs_no_more_memory_for_a_ledger_of_ten_times_as_many_batches(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    small, large = (driver_memory(cluster, tmp_path / str(count), count) for count in (100_000, 1_000_000))
    assert large["runs"] > 9 * small["runs"] > 0
    assert large["python_bytes"] <= 1.2 * small["python_bytes"]
    assert large["java_bytes"] <= 1.2 * small["java_bytes"]
