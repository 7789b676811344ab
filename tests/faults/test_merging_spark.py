"""Invariants 4 and 7 with jobs on Spark: whatever reads, writes, deletes or dies while runs are merged,
consumers see the same records at the same offsets, and the next job merges what is left."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.load import Load, Place, new_consumer, read_all
from tests.faults.merge_jobs import EAGER, SOCKET, MergeProcess, merging
from tests.faults.test_invariant_01_kill import watching
from tests.faults.test_merging import (
    NO_OWN_JOBS,
    READ_S,
    START_S,
    TOPICS,
    acked,
    check_all,
    finish,
    producing,
    read_from_start,
    restart,
    wait_for,
)
from tests.support.far_stores import ETCD_S3, FarGateway, far_place
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.processes import descendants, tail_of
from tests.support.spark import why_no_spark
from tests.support.spark_cluster import JOB_CONF, PYTHON_DAEMON, SparkCluster, running_spark_cluster
from tests.support.topics import create_topics, delete_topics
from tests.support.versions import ROOT

HERE: Final = "local[2,4]"
JOB_S: Final = 900.0
BEGINS_S: Final = 300.0
"""Until a job has a Spark: that is seconds, and much more on a busy machine."""
ENDS_S: Final = 60.0
"""Until Java has ended after what drives it."""
COMMAND_S: Final = 600.0
OLD_ENOUGH_S: Final = 11.0
"""Younger runs are left alone."""
FULL: Final = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
PAUSE_S: Final = 0.02 if FULL else 0.05
"""Of each producer between two records: jobs are long, and what they leave is read three times."""
BEFORE_A_KILL: Final = 300 if FULL else 100
AFTER_KILLS: Final = 200 if FULL else 100
"""Records of all producers."""
FULL_KILLS: Final = int(os.environ.get("DRAGOMAN_TEST_KILLS", "30"))
ROUNDS: Final = 4
RETAINED_BYTES: Final = 50_000
PARTITIONS: Final = 8
WHOLE: Final[Mapping[str, int]] = {"due_runs": 2, "tail_ms": 0}
"""A policy: merge whatever can be merged, in as few tasks as there can be."""


@dataclass
class Scene:
    """A gateway, and where its jobs run. `stores`: flags that name its stores."""

    gateway: Gateway
    socket: Path
    stores: Sequence[str]
    master: str
    log: Path
    cluster: SparkCluster | None = None

    @contextmanager
    def job(self, engine: str = "spark", policy: Mapping[str, int] = EAGER) -> Iterator[MergeProcess]:
        request: dict[str, object] = {"engine": engine, "peer": {"path": str(self.socket)}}
        if engine == "spark":
            request["spark"] = {"master": self.master, "conf": dict(JOB_CONF)}
        with merging(self.gateway, policy, self.log, **request) as job:
            yield job

    def merge(self, engine: str = "spark", policy: Mapping[str, int] = EAGER) -> dict[str, Any]:
        with self.job(engine, policy) as job:
            return job.summary(JOB_S)

    def merge_all(self) -> None:
        """What was contested is left for the next job."""
        for _ in range(3):
            if self.merge("local")["runs"] == 0:
                return
        raise AssertionError("there is something to merge again and again")

    def has_executors(self) -> bool:
        return self.cluster is not None and bool(self.cluster.executors())

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Of `dragoman`, with the stores of the gateway."""
        given = [sys.executable, "-m", "gateway.cli.main", *arguments, *self.stores]
        return subprocess.run(given, capture_output=True, text=True, timeout=COMMAND_S, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def cluster(aws_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """With the credentials of the stores."""
    skip_without_spark()
    with running_spark_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture
def far_scene(request: pytest.FixtureRequest, cluster: SparkCluster, tmp_path: Path) -> Iterator[Scene]:
    """Over etcd and S3, with the cluster."""
    place = far_place(request, ETCD_S3)
    socket = tmp_path / "internal.sock"
    options = [*NO_OWN_JOBS, "--set", f"internal.socket={socket}"]
    options += ["--set", "broker.log.retention.check.interval.ms=200"]
    # Each draft is an object, so that there is something to merge.
    options += ["--set", "storage.inline_bytes=0"]
    gateway = FarGateway(place, tmp_path / "gateway", options)
    try:
        gateway.start(START_S)
        yield Scene(gateway, socket, place.options(), cluster.url, tmp_path / "jobs.log", cluster)
    finally:
        gateway.stop()
        # Captured: pytest shows it only when the test has failed.
        sys.stdout.write(f"{gateway.log_tail()}\n{tail_of(tmp_path / 'jobs.log')}\n")


def skip_without_spark() -> None:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)


def java_of(job: MergeProcess) -> int | None:
    """The Java of the driver, when it has started one."""
    found = [each.pid for each in descendants(job.pid) if "spark.deploy.SparkSubmit" in each.command]
    return found[0] if found else None


def wait_until(holds: Callable[[], object], job: MergeProcess, timeout_s: float = BEGINS_S) -> bool:
    """Whether that was so before the job ended."""
    deadline = time.monotonic() + timeout_s
    while job.is_running():
        if holds():
            return True
        assert time.monotonic() < deadline, "the job does not begin"
        time.sleep(0.02)
    return False


def ended(said: Sequence[Mapping[str, Any]]) -> str:
    """How a job has ended that need not be done: it says so in one sentence."""
    assert said and ("summary" in said[-1] or "error" in said[-1]), said
    if "summary" in said[-1]:
        return "done"
    assert "\n" not in said[-1]["error"], said[-1]
    return "failed"


def kill_gateway(scene: Scene, job: MergeProcess) -> str:
    scene.gateway.kill9()
    scene.gateway.start(START_S)
    return ended(job.wait(JOB_S))


def kill_driver(_: Scene, job: MergeProcess) -> str:
    """Its Java ends by itself."""
    java = java_of(job)
    os.kill(job.pid, signal.SIGKILL)
    deadline = time.monotonic() + ENDS_S
    while java is not None and Path(f"/proc/{java}").exists():
        assert time.monotonic() < deadline, "the Java of a killed driver goes on"
        time.sleep(0.05)
    job.kill9()
    return "killed"


def kill_java(_: Scene, job: MergeProcess) -> str:
    java = java_of(job)
    if java is not None:
        os.kill(java, signal.SIGKILL)
    return ended(job.wait(JOB_S))


def kill_executor(scene: Scene, job: MergeProcess) -> str:
    assert scene.cluster is not None
    killed = scene.cluster.kill_executor()
    return _done(job, killed)


def kill_python(scene: Scene, job: MergeProcess) -> str:
    assert scene.cluster is not None
    killed = scene.cluster.kill_python()
    return _done(job, killed)


def kill_worker(scene: Scene, job: MergeProcess) -> str:
    """And its executor. It comes back while the job goes on."""
    assert scene.cluster is not None
    scene.cluster.kill_worker(0)
    scene.cluster.start_worker(0)
    return _done(job, True)


def kill_child(_: Scene, job: MergeProcess) -> str:
    """The whole job, with all that it has started."""
    job.kill9()
    return "killed"


def _done(job: MergeProcess, killed: bool) -> str:
    """A job that Spark mends by itself: it is done."""
    summary = job.summary(JOB_S)
    assert not summary["damages"] and not summary["left_runs"], summary
    return "done" if killed else "done before"


class Kill(NamedTuple):
    """Of a job of this engine, when `at` holds. What it does says how the job has ended."""

    does: Callable[[Scene, MergeProcess], str]
    engine: str
    at: Callable[[Scene, MergeProcess], object]


def at_once(_: Scene, __: MergeProcess) -> bool:
    return True


def with_java(_: Scene, job: MergeProcess) -> bool:
    return java_of(job) is not None


def at_work(scene: Scene, _: MergeProcess) -> bool:
    return scene.has_executors()


def with_python(scene: Scene, _: MergeProcess) -> bool:
    return scene.cluster is not None and bool(scene.cluster.pythons())


def with_tasks(_: Scene, job: MergeProcess) -> bool:
    """Spark has started, and carries out the first tasks on the driver's machine."""
    return any(PYTHON_DAEMON in each.command for each in descendants(job.pid))


KILLS_HERE: Final = (Kill(kill_java, "spark", with_tasks), Kill(kill_driver, "spark", with_tasks))
KILLS_FAR: Final = (
    Kill(kill_executor, "spark", at_work),
    Kill(kill_gateway, "spark", at_work),
    Kill(kill_python, "spark", with_python),
    Kill(kill_driver, "spark", at_work),
    Kill(kill_worker, "spark", at_work),
    Kill(kill_java, "spark", with_java),
    Kill(kill_child, "local", at_once),
    Kill(kill_gateway, "local", at_once),
)


def kill_again_and_again(scene: Scene, kills: Sequence[Kill], longest_s: float) -> None:
    """Each up to `longest_s` after its moment."""
    seed = int(os.environ.get("DRAGOMAN_TEST_SEED", time.time_ns() % 1_000_000))
    dice = random.Random(seed)
    gateway = scene.gateway
    ends: list[str] = []
    with producing(gateway, PAUSE_S) as loads, watching(gateway.bootstrap) as watcher:
        for kill in kills:
            wait_for(loads, BEFORE_A_KILL)
            with scene.job(kill.engine) as job:
                wait_until(lambda job=job, kill=kill: kill.at(scene, job), job)  # type: ignore[misc]
                time.sleep(dice.uniform(0.0, longest_s))
                ends.append(f"{kill.does.__name__} {kill.does(scene, job)}")
        wait_for(loads, AFTER_KILLS)
        finish(loads)
    print(f"{len(kills)} kills, seed {seed}: {acked(loads)} records acked, jobs {ends}")  # noqa: T201
    before = check_all(gateway, loads)
    summary = scene.merge()
    assert summary["runs"] > 0 and not summary["damages"] and summary["left_runs"] == 0
    scene.merge_all()
    assert read_all(gateway.bootstrap, TOPICS) == before
    restart(gateway)
    assert read_all(gateway.bootstrap, TOPICS) == before
    assert watcher.changed == [] and watcher.seen
    gateway.terminate()
    check_audit(scene)


def check_audit(scene: Scene) -> None:
    """Every offset is readable once, and every object accounted for."""
    audit = scene.command("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.timeout(600)
def test_kills_of_a_driver_and_its_java_change_nothing_that_is_visible(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    skip_without_spark()
    gateway = gateway_factory(NO_OWN_JOBS)
    gateway.start(START_S)
    stores = ["--data-dir", str(gateway.data_dir)]
    scene = Scene(gateway, gateway.data_dir / SOCKET, stores, HERE, tmp_path / "jobs.log")
    kill_again_and_again(scene, KILLS_HERE, 1.0)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_30_kills_of_whatever_takes_part_change_nothing_that_is_visible(far_scene: Scene) -> None:
    kill_again_and_again(far_scene, [KILLS_FAR[at % len(KILLS_FAR)] for at in range(FULL_KILLS)], 3.0)


def make_topics(bootstrap: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    retained = {"retention.bytes": str(RETAINED_BYTES)}
    topics = [NewTopic("trimmed", 2, 1), NewTopic("again", 2, 1), NewTopic("kept", 2, 1, config=retained)]
    for done in admin.create_topics(topics).values():
        done.result(READ_S)
    return admin


def check_known(bootstrap: str, values: Mapping[Place, Mapping[int, bytes]]) -> dict[Place, int]:
    """What can be read of each partition is what was acknowledged there. Where each begins."""
    consumer = new_consumer(bootstrap)
    starts: dict[Place, int] = {}
    for place, known in values.items():
        found = read_from_start(consumer, place)
        assert found and max(found) == max(known)
        assert {offset: known[offset] for offset in found} == found
        starts[place] = min(found)
    consumer.close()
    return starts


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_clients_see_the_same_while_spark_merges_and_all_else_goes_on(far_scene: Scene) -> None:
    """Producers, consumers, retention, DeleteRecords, deletion and creation of topics, restarts."""
    gateway = far_scene.gateway
    admin = make_topics(gateway.bootstrap)
    values: dict[Place, dict[int, bytes]] = {}
    with producing(gateway, PAUSE_S) as loads, watching(gateway.bootstrap) as watcher:
        for number in range(ROUNDS):
            others = [
                Load(gateway.bootstrap, f"{topic}{number}", topic, 2, max_records=600, pause_s=0.001).start()
                for topic in ("trimmed", "again", "kept")
            ]
            for other in others:
                other.complete()
                assert other.failures == []
                for ack in other.acks:
                    values.setdefault(ack.place, {})[ack.offset] = ack.value
            with far_scene.job() as job:
                wait_until(far_scene.has_executors, job)
                ends = {place: max(found) + 1 for place, found in values.items()}
                cuts = [TopicPartition("trimmed", at, ends["trimmed", at] - 100 - at) for at in range(2)]
                for done in admin.delete_records(cuts, request_timeout=READ_S).values():
                    done.result(READ_S)
                if number == 1:
                    restart(gateway)
                if number == 2:
                    delete_topics(gateway.bootstrap, ["again"])
                    create_topics(gateway.bootstrap, {"again": 2})
                    values = {place: known for place, known in values.items() if place[0] != "again"}
                said = job.wait(JOB_S)
            assert ended(said) == "done" or number == 1, said[-1]
            assert not said[-1].get("summary", {}).get("damages"), said[-1]
            starts = check_known(gateway.bootstrap, values)
            assert starts["trimmed", 0] == ends["trimmed", 0] - 100
        wait_for(loads, 200)
        finish(loads)
    assert starts["kept", 0] > 0
    before = check_all(gateway, loads)
    assert watcher.changed == [] and watcher.seen
    far_scene.merge_all()
    restart(gateway)
    assert read_all(gateway.bootstrap, TOPICS) == before
    check_known(gateway.bootstrap, values)
    gateway.terminate()
    check_audit(far_scene)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_job_of_each_engine_at_once_merge_each_run_once(far_scene: Scene) -> None:
    gateway = far_scene.gateway
    with producing(gateway) as loads:
        wait_for(loads, 1_500)
        finish(loads)
    before = check_all(gateway, loads)
    with far_scene.job() as one:
        wait_until(far_scene.has_executors, one)
        with far_scene.job("local") as other:
            summaries = [one.summary(JOB_S), other.summary(JOB_S)]
    assert all(not each["damages"] for each in summaries)
    assert sum(each["segments"] for each in summaries) > 0
    assert read_all(gateway.bootstrap, TOPICS) == before
    far_scene.merge_all()
    assert read_all(gateway.bootstrap, TOPICS) == before
    gateway.terminate()
    check_audit(far_scene)


@dataclass(frozen=True, slots=True)
class Batches:
    """What is produced: `flushes` times a record of `size` bytes to each of so many partitions at once."""

    flushes: int
    size: int
    partitions: int


def produce(gateway: Gateway, batches: Batches) -> None:
    create_topics(gateway.bootstrap, {"t": PARTITIONS})
    config = {"bootstrap.servers": gateway.bootstrap, "linger.ms": 20, "batch.size": 500_000}
    producer, value = Producer({**config, "log_level": 0}), os.urandom(batches.size)
    for number in range(batches.flushes):
        for at in range(batches.partitions):
            producer.produce("t", value, partition=(number + at) % PARTITIONS)
        assert producer.flush(READ_S) == 0


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("batches", "is_shuffled"),
    [(Batches(160, 200_000, 1), False), (Batches(600, 4_000, PARTITIONS), True)],
    ids=["direct", "shuffled"],
)
def test_each_byte_is_read_and_written_once_over_s3(
    far_scene: Scene, batches: Batches, is_shuffled: bool
) -> None:
    produce(far_scene.gateway, batches)
    done = far_scene.merge("spark", WHOLE)
    print(f"{done}")  # noqa: T201
    assert done["run_bytes"] > 0.9 * batches.flushes * batches.size * batches.partitions
    assert done["read_bytes"] <= 1.05 * done["run_bytes"]
    assert done["written_bytes"] <= 1.05 * done["run_bytes"]
    assert done["shuffled_bytes"] == (done["run_bytes"] if is_shuffled else 0)
    assert done["orphans"] == done["again"] == 0


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_command_merges_on_a_cluster(far_scene: Scene) -> None:
    gateway = far_scene.gateway
    produce(gateway, Batches(600, 200, PARTITIONS))
    before = read_all(gateway.bootstrap, {"t": PARTITIONS})
    time.sleep(OLD_ENOUGH_S)
    conf = [flag for name, value in JOB_CONF.items() for flag in ("--spark-conf", f"{name}={value}")]
    found = far_scene.command(
        *("compact", "segments", "--engine", "spark", "--master", far_scene.master, *conf, "--json"),
        *("--set", f"internal.socket={far_scene.socket}"),
    )
    assert found.returncode == 0, found.stderr
    summary = json.loads(found.stdout)["summary"]
    assert summary["runs"] >= 500 * PARTITIONS and summary["segments"] == PARTITIONS
    assert not summary["damages"] and summary["java_max_rss_bytes"] > 0
    assert read_all(gateway.bootstrap, {"t": PARTITIONS}) == before
