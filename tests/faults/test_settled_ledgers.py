"""Settled ledgers as an operator sees them: written by a job, read with a gateway and without, and wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import walk
from ledger.batch.records import Record, build_batch
from ledger.keys import settled_keys_of
from ledger.objects.uploads import ObjectKind
from pipeline.links import UnixLink
from pipeline.peer import PeerClient
from tests.faults.merge_jobs import EAGER, merge, merging
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.spark import JAVA_OPTIONS, why_no_spark
from tests.support.topics import create_topics
from tests.support.versions import ROOT

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 200.0
FLUSHES = 60
OFFSETS = 3 * FLUSHES
KILLS = 4 if os.environ.get("DRAGOMAN_TEST_FULL") == "1" else 2
END = OFFSETS + 3 * KILLS
"""Of a partition that has had one more flush after each kill."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False, cwd=ROOT
    )


def produce(gateway: Gateway, topic: str, flushes: int, partition: int = 0) -> None:
    """Each request is a flush of its own, with three records."""
    records = [Record(at, at, b"k", b"v" * 20, ()) for at in range(3)]
    batch = bytes(build_batch(records, base_timestamp=int(time.time() * 1000)))
    with Client(Address(gateway.host, gateway.port), timeout=60.0) as client:
        for _ in range(flushes):
            data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
            response = client.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, -1, 5000, [data]))
            assert response.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def filled(gateway_factory: GatewayFactory) -> Gateway:
    gateway = gateway_factory(["--set", "housekeeping.merge_runs=0"])
    gateway.start(WAIT_S)
    create_topics(gateway.bootstrap, {"orders": 2})
    produce(gateway, "orders", FLUSHES)
    return gateway


def places_in_ledger(gateway: Gateway) -> Iterator[tuple[int, str, int, int]]:
    """Of partition 0 of orders: each batch's base offset, object, position and size, by the gateway."""
    with PeerClient(UnixLink(gateway.data_dir / "internal.sock")) as peer:
        (topic,) = peer.topics()
        for run in peer.find_batches(topic.topic_id, 0, 0).runs:
            path = gateway.data_dir / run.object_key
            path = path if path.exists() else gateway.data_dir / "blobs" / run.object_key
            data = memoryview(path.read_bytes())[run.start : run.start + run.size]
            following = run.base
            for batch in walk(data):
                base = batch.base_offset if run.kind == ObjectKind.SEGMENT else following
                following = base + batch.last_offset_delta + 1
                yield base, run.object_key, run.start + batch.position, batch.size_bytes


def translated(gateway: Gateway, offset: int) -> dict[str, object]:
    found = run(
        "ledger", "translate", "orders", "0", str(offset), "--data-dir", str(gateway.data_dir), "--json"
    )
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


def settled_files(gateway: Gateway) -> list[str]:
    root = gateway.data_dir / "blobs" / "settled"
    return sorted(path.name for path in root.rglob("*") if path.is_file())


@pytest.mark.timeout(400)
def test_it_is_written_and_read_with_a_gateway_and_without(filled: Gateway) -> None:
    data_dir = ["--data-dir", str(filled.data_dir)]
    planned = run("compact", "ledger", *data_dir, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.split()[-4:] == ["orders", "2", "1", str(OFFSETS)]
    assert settled_files(filled) == []
    # Segments and runs of the log, side by side.
    merge(filled, EAGER)
    produce(filled, "orders", 3)
    wrote = run("compact", "ledger", *data_dir, "--json")
    assert wrote.returncode == 0, wrote.stderr
    summary = json.loads(wrote.stdout)["summary"]
    assert (summary["named"], summary["unchanged"], summary["left"]) == (1, 1, [])
    assert len(settled_files(filled)) == 3
    live = list(places_in_ledger(filled))
    assert {place[1].partition("/")[0] for place in live} == {"seg", "log"}
    for base, locator, start, size in (live[0], live[-1]):
        found = translated(filled, base)
        assert (found["object"], found["start"], found["size"]) == (locator, start, size)
    newer = run("ledger", "translate", "orders", "0", str(OFFSETS + 9), *data_dir)
    assert newer.returncode == 1 and f"and {OFFSETS + 9} is newer: write a new one" in newer.stderr
    again = run("compact", "ledger", *data_dir)
    assert again.returncode == 0 and "Wrote 0 settled ledgers" in again.stdout
    filled.terminate()
    # From the stores alone.
    base, locator, start, size = live[len(live) // 2]
    found = translated(filled, base + 1)
    assert (found["object"], found["start"], found["size"], found["base_offset"]) == (
        locator,
        start,
        size,
        base,
    )
    said = run("ledger", "translate", "orders", "0", str(base), *data_dir)
    where = f"{size} bytes at byte {start} of {locator}"
    assert said.stdout == f"Offset {base} is in the batch of offsets {base} to {base + 2}: {where}.\n"
    doctor = run("doctor", *data_dir)
    assert (
        doctor.returncode == 0
        and "settled ledgers: 1, none missing or short" in doctor.stdout + doctor.stderr
    )
    audit = run("audit", *data_dir)
    assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.full
@pytest.mark.timeout(400)
def test_it_is_written_by_spark(filled: Gateway) -> None:
    if (reason := why_no_spark()) is not None:
        pytest.skip(reason)
    produce(filled, "orders", 5, partition=1)
    wrote = run(
        *("compact", "ledger", "--data-dir", str(filled.data_dir), "--json"),
        *("--engine", "spark", "--master", "local[2,4]"),
        *("--spark-conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
    )
    assert wrote.returncode == 0, wrote.stderr
    assert json.loads(wrote.stdout)["summary"]["named"] == 2
    base, locator, start, size = list(places_in_ledger(filled))[-1]
    found = translated(filled, base)
    assert (found["object"], found["start"], found["size"]) == (locator, start, size)
    filled.terminate()
    audit = run("audit", "--data-dir", str(filled.data_dir))
    assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.timeout(400)
def test_jobs_that_are_killed_leave_orphans_alone_and_two_at_once_name_one(filled: Gateway) -> None:
    dice = random.Random(7)
    for _ in range(KILLS):
        with merging(filled, EAGER, job="ledger") as job:
            time.sleep(dice.uniform(0.0, 1.5))
            job.kill9()
        produce(filled, "orders", 1)
    with ExitStack() as stack:
        both = [stack.enter_context(merging(filled, EAGER, job="ledger")) for _ in range(2)]
        assert sum(job.summary()["named"] for job in both) >= 1
    with PeerClient(UnixLink(filled.data_dir / "internal.sock")) as peer:
        (topic,) = peer.topics()
        newest = peer.newest_settled(topic.topic_id, 0)
        assert newest.high_watermark == END and newest.files is not None
        stem = Path(newest.files.locator).stem
        assert {name for name in settled_files(filled) if name.startswith(stem)} == {
            f"{stem}.{ending}" for ending in ("index", "json", "log")
        }
    last = translated(filled, END - 1)
    assert last["settled"] == newest.files.locator
    os.kill(filled.pid, signal.SIGKILL)
    filled.wait_for_exit()
    filled.start(WAIT_S)
    assert translated(filled, END - 1) == last
    filled.terminate()
    audit = run("audit", "--data-dir", str(filled.data_dir))
    assert audit.returncode == 0, audit.stdout + audit.stderr
    path = filled.data_dir / "blobs" / settled_keys_of(newest.files.locator).index_key
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    damaged = run("audit", "--data-dir", str(filled.data_dir), "--json")
    (damage,) = json.loads(damaged.stdout)["damages"]
    assert (damaged.returncode, damage["kind"], damage["partition"]) == (3, "settled ledger", 0)
