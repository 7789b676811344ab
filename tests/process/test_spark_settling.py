"""Settled ledgers written by a real Spark of this machine, over a double of the gateway with its objects on
disk."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import StoreError
from ledger.requests import Refused
from ledger.settled.requests import NameSettled
from pipeline.engines.spark_context import SparkPlace, spark_context
from pipeline.engines.spark_settling import SparkWriter
from pipeline.segments import Host
from pipeline.settling import SettlingEngine, SettlingJob, SettlingTotals
from tests.support.merge_peer_on_disk import ObjectFiles
from tests.support.processes import descendants
from tests.support.settling_peer import SettlingPeer
from tests.support.spark import why_no_spark

QUICK = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    with spark_context(SparkPlace("local[2,4]", QUICK)) as context:
        context.setLogLevel("OFF")
        yield context


@pytest.fixture
def peer(tmp_path: Path) -> SettlingPeer:
    made = SettlingPeer(["t", "u"], partitions=3, page=50)
    made.objects = ObjectFiles(tmp_path / "data")
    made.fill(120)
    return made


def settled(peer: SettlingPeer, context: Any, url: str = "", wave_runs: int = 300) -> SettlingTotals:
    assert isinstance(peer.objects, ObjectFiles)
    with closing(SparkWriter(context, url or peer.objects.url, {})) as writer:
        engine = SettlingEngine(writer, wave_runs)
        return SettlingJob(peer, engine, Host(peer.elapsed_s, os.urandom)).run()


def check(peer: SettlingPeer) -> None:
    for topic_id, partition in peer.parts:
        for offset in range(0, peer.parts[topic_id, partition].end, 7):
            batch = peer.translate(topic_id, partition, offset)
            assert batch is not None
            live = peer.batch_of(topic_id, partition, offset)
            assert (batch.run.locator, batch.start, batch.size) == live


def test_executors_write_what_the_driver_has_found(context: Any, peer: SettlingPeer) -> None:
    totals = settled(peer, context)
    assert (totals.named, totals.runs, totals.orphans, totals.left) == (6, 6 * 120, 0, [])
    check(peer)
    assert peer.pins == {} and settled(peer, context).named == 0


def test_what_a_killed_executor_was_at_is_done_again(context: Any, peer: SettlingPeer) -> None:
    killed: list[int] = []

    def kill_workers(_: NameSettled) -> Refused | None:
        if not killed:
            workers = [each.pid for each in descendants(os.getpid()) if "pyspark.daemon" in each.command]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            killed.extend(workers)
        return None

    peer.before_naming = kill_workers
    assert settled(peer, context).named == 6
    assert killed
    check(peer)


def test_a_store_that_executors_do_not_reach_ends_the_job(
    context: Any, peer: SettlingPeer, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="there is no data of a gateway in"):
        settled(peer, context, f"objects+file:{tmp_path / 'elsewhere'}")
    assert peer.named == {} and peer.pins == {}
