"""Invariants 4 and 7: whatever reads, writes, deletes or dies while runs are merged, consumers see the same
records at the same offsets, and the next job merges what is left."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.faults.load import Found, Load, Place, found_in, new_consumer, problems, read_all
from tests.faults.merge_jobs import EAGER, JobEnded, merge, merging
from tests.faults.test_invariant_01_kill import watching
from tests.support.data_files import take_journal_away
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.spark import JAVA_OPTIONS, why_no_spark
from tests.support.topics import create_topics, delete_topics
from tests.support.versions import ROOT

TOPICS: Final[Mapping[str, int]] = {"one": 1, "five": 5, "many": 12}
PRODUCERS: Final = ("one", "five", "many")
KILLS, FULL_KILLS = 5, 30
LARGE_RECORD, LARGE_RECORDS = 50_000, 2_400
READ_S: Final = 60.0
START_S: Final = 60.0
FULL: Final = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
DELETIONS: Final = 6 if FULL else 3
SLEPT_RECORDS: Final = 2_500 if FULL else 1_200
MOST_RSS_BYTES: Final = 256 * 1024 * 1024
OLD_ENOUGH_S: Final = 11.0
"""Younger runs are left alone."""
MANY_TASKS: Final[Mapping[str, int]] = {**EAGER, "task_bytes": 1024}
ENGINES: Final[Mapping[str, Mapping[str, object]]] = {
    "local": {},
    "spark": {
        "engine": "spark",
        "spark": {"master": "local[2,4]", "conf": {"spark.driver.extraJavaOptions": JAVA_OPTIONS}},
    },
}
"""What a request has for each of them."""
KILLED_WITHIN_S: Final = {"local": 2.0, "spark": 10.0}
"""Of its start. The process of the local engine starts in about half a second, and a job of so few runs takes
about another; Spark starts in five."""
NO_OWN_JOBS: Final = ["--set", "housekeeping.merge_runs=0"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "spark" and (reason := why_no_spark()):
        pytest.skip(reason)
    return str(request.param)


@contextmanager
def producing(gateway: Gateway, pause_s: float = 0.005) -> Iterator[list[Load]]:
    create_topics(gateway.bootstrap, TOPICS)
    loads = [
        Load(gateway.bootstrap, f"p{n}", topic, TOPICS[topic], pause_s=pause_s).start()
        for n, topic in enumerate(PRODUCERS)
    ]
    try:
        yield loads
    finally:
        for load in loads:
            load.stop_sending()


def restart(gateway: Gateway) -> None:
    gateway.terminate()
    gateway.start(START_S)


def acked(loads: Sequence[Load]) -> int:
    return sum(len(load.acks) for load in loads)


def wait_for(loads: Sequence[Load], records: int) -> None:
    deadline, before = time.monotonic() + 60.0, acked(loads)
    while acked(loads) < before + records:
        assert time.monotonic() < deadline, [load.failures for load in loads]
        time.sleep(0.02)


def finish(loads: Sequence[Load]) -> None:
    for load in loads:
        load.stop_sending()
    for load in loads:
        load.finish()


def check_all(gateway: Gateway, loads: Sequence[Load]) -> dict[Place, list[Found]]:
    """All acked records are there once, in their order, and nothing else. Returns them."""
    log = read_all(gateway.bootstrap, TOPICS)
    acks = [ack for load in loads for ack in load.acks]
    assert [failure for load in loads for failure in load.failures] == []
    assert problems(log, acks)[:20] == []
    assert sum(map(len, log.values())) == len(acks)
    return log


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.full)], indirect=True)
def test_consumers_read_the_same_before_while_and_after_runs_are_merged(
    gateway_factory: GatewayFactory, engine: str
) -> None:
    gateway = gateway_factory(NO_OWN_JOBS)
    gateway.start(START_S)
    with producing(gateway) as loads, watching(gateway.bootstrap) as watcher:
        summaries = []
        for _ in range(3):
            wait_for(loads, 800)
            summaries.append(merge(gateway, EAGER, **ENGINES[engine]))
        restart(gateway)
        wait_for(loads, 300)
        finish(loads)
    before = check_all(gateway, loads)
    summaries.append(merge(gateway, EAGER, **ENGINES[engine]))
    assert all(summary["runs"] > 100 and not summary["damages"] for summary in summaries)
    assert all(summary["orphans"] == summary["again"] == 0 for summary in summaries)
    assert read_all(gateway.bootstrap, TOPICS) == before
    gateway.kill9()
    gateway.start(START_S)
    assert read_all(gateway.bootstrap, TOPICS) == before
    assert watcher.changed == [] and watcher.seen
    # Nothing of the image is needed to read segments.
    gateway.terminate()
    (gateway.data_dir / "image.db").unlink()
    gateway.start(START_S)
    assert read_all(gateway.bootstrap, TOPICS) == before
    gateway.terminate()
    check_audit(gateway)


def check_audit(gateway: Gateway) -> None:
    """Every offset is readable once, and every object accounted for."""
    command = [sys.executable, "-m", "gateway.cli.main", "audit", "--data-dir", str(gateway.data_dir)]
    audit = subprocess.run(command, capture_output=True, text=True, timeout=READ_S, check=False, cwd=ROOT)
    assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.timeout(240)
def test_two_jobs_at_once_merge_each_run_once(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(NO_OWN_JOBS)
    gateway.start(START_S)
    with producing(gateway) as loads:
        wait_for(loads, 1_500)
        finish(loads)
    before = check_all(gateway, loads)
    with merging(gateway) as one, merging(gateway) as other:
        summaries = [one.summary(), other.summary()]
    assert sum(summary["segments"] for summary in summaries) > 0
    assert not any(summary["damages"] for summary in summaries)
    assert read_all(gateway.bootstrap, TOPICS) == before
    # A partition that the two contested again and again is left for the next.
    merge(gateway)
    left = merge(gateway)
    assert left["runs"] == 0, left
    assert read_all(gateway.bootstrap, TOPICS) == before


def kill_again_and_again(gateway: Gateway, kills: int, engine: str = "local") -> None:
    seed = int(os.environ.get("DRAGOMAN_TEST_SEED", time.time_ns() % 1_000_000))
    dice = random.Random(seed)
    gateway.start(START_S)
    ends: list[str] = []
    with producing(gateway) as loads, watching(gateway.bootstrap) as watcher:
        for number in range(kills):
            wait_for(loads, 600)
            with merging(gateway, EAGER, None, **ENGINES[engine]) as job:
                time.sleep(dice.uniform(0.2, KILLED_WITHIN_S[engine]))
                if number % 2:
                    gateway.kill9()
                    ends.append(_end_of(job.wait()))
                    gateway.start(START_S)
                else:
                    ends.append("killed" if job.is_running() else "done")
                    job.kill9()
        wait_for(loads, 300)
        finish(loads)
    print(f"{kills} kills, seed {seed}: {acked(loads)} records acked, jobs {ends}")  # noqa: T201
    before = check_all(gateway, loads)
    summary = merge(gateway)
    assert not summary["damages"] and summary["left_runs"] == 0
    assert merge(gateway)["runs"] == 0
    assert read_all(gateway.bootstrap, TOPICS) == before
    restart(gateway)
    assert read_all(gateway.bootstrap, TOPICS) == before
    assert watcher.changed == []
    gateway.terminate()
    check_audit(gateway)


def _end_of(said: Sequence[Mapping[str, Any]]) -> str:
    """Of a job whose gateway was killed: it is done, or it says so in one sentence."""
    assert said and ("summary" in said[-1] or "error" in said[-1]), said
    return "done" if "summary" in said[-1] else "failed"


@pytest.mark.timeout(300)
def test_kills_of_gateway_and_job_change_nothing_that_is_visible(gateway_factory: GatewayFactory) -> None:
    kill_again_and_again(gateway_factory(NO_OWN_JOBS), KILLS)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_30_kills_of_gateway_and_job_change_nothing_that_is_visible(
    gateway_factory: GatewayFactory, engine: str
) -> None:
    kill_again_and_again(gateway_factory(NO_OWN_JOBS), FULL_KILLS, engine)


def wait_for_swap(gateway: Gateway) -> None:
    deadline = time.monotonic() + 60.0
    while b"segments.swapped" not in gateway.log_path.read_bytes():
        assert time.monotonic() < deadline, gateway.log_tail()
        time.sleep(0.005)


def run_command(*arguments: str) -> None:
    command = [sys.executable, "-m", "gateway.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_S, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(240)
def test_a_job_that_has_slept_through_a_restore_begins_again_and_changes_nothing(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(NO_OWN_JOBS)
    gateway.start(START_S)
    with producing(gateway, pause_s=0.001) as loads:
        wait_for(loads, SLEPT_RECORDS)
        finish(loads)
    before = check_all(gateway, loads)
    data, backup = str(gateway.data_dir), str(gateway.directory / "backup")
    with merging(gateway, MANY_TASKS) as job:
        wait_for_swap(gateway)
        os.kill(job.pid, signal.SIGSTOP)
        gateway.terminate()
        run_command("ledger", "backup", "--data-dir", data, "--to", backup)
        take_journal_away(gateway.data_dir)
        for path in gateway.data_dir.glob("image.db*"):
            path.unlink()
        run_command("ledger", "restore", "--from", backup, "--data-dir", data)
        gateway.start(START_S)
        os.kill(job.pid, signal.SIGCONT)
        done = job.summary()
    assert done["again"] == 1 and not done["damages"], done
    assert read_all(gateway.bootstrap, TOPICS) == before
    gateway.terminate()
    check_audit(gateway)


def read_from_start(consumer: Consumer, place: Place) -> dict[int, bytes]:
    """Offset -> value of what can be read of a partition, after a gateway has answered where it begins."""
    marks = consumer.get_watermark_offsets(TopicPartition(*place), timeout=READ_S)
    assert marks is not None
    low, high = marks
    found: dict[int, bytes] = {}
    consumer.assign([TopicPartition(*place, low)])
    deadline = time.monotonic() + READ_S
    while low < high and max(found, default=-1) < high - 1:
        assert time.monotonic() < deadline
        for message in consumer.consume(500, 0.2):
            _, record = found_in(message)
            found[record.offset] = record.value
    assert sorted(found) == list(range(low, high))
    return found


@pytest.mark.timeout(240)
def test_records_are_deleted_and_topics_made_again_while_runs_are_merged(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory([*NO_OWN_JOBS, "--set", "broker.log.retention.check.interval.ms=200"])
    gateway.start(START_S)
    create_topics(gateway.bootstrap, {"trimmed": 2, "again": 2})
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap, "log_level": 0})
    values: dict[Place, dict[int, bytes]] = {}
    for number in range(DELETIONS):
        loads = [
            Load(gateway.bootstrap, f"{topic}{number}", topic, 2, max_records=1_200, pause_s=0.0005).start()
            for topic in ("trimmed", "again")
        ]
        with merging(gateway) as job:
            for load in loads:
                load.complete()
            for load in loads:
                assert load.failures == []
                for ack in load.acks:
                    values.setdefault(ack.place, {})[ack.offset] = ack.value
            ends = {place: max(found) + 1 for place, found in values.items()}
            cuts = [TopicPartition("trimmed", at, ends["trimmed", at] - 150 - at) for at in range(2)]
            for done in admin.delete_records(cuts).values():
                done.result(READ_S)
            summary = job.summary()
        assert not summary["damages"], summary
        consumer = new_consumer(gateway.bootstrap)
        for place, known in values.items():
            found = read_from_start(consumer, place)
            assert {offset: known[offset] for offset in found} == found
        assert min(read_from_start(consumer, ("trimmed", 0))) == ends["trimmed", 0] - 150
        consumer.close()
        if number % 2:
            with merging(gateway) as job:
                delete_topics(gateway.bootstrap, ["again"])
                create_topics(gateway.bootstrap, {"again": 2})
                assert not job.summary()["damages"]
            for at in range(2):
                del values["again", at]
    merge(gateway)
    restart(gateway)
    consumer = new_consumer(gateway.bootstrap)
    for place, known in values.items():
        found = read_from_start(consumer, place)
        assert {offset: known[offset] for offset in found} == found
    consumer.close()


@pytest.mark.timeout(240)
def test_a_gateway_merges_by_itself_and_its_job_ends_with_it(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(list(NO_OWN_JOBS))
    gateway.start(START_S)
    with producing(gateway) as loads:
        wait_for(loads, 1_000)
        finish(loads)
    before = check_all(gateway, loads)
    assert read_all(gateway.bootstrap, TOPICS) == before
    time.sleep(OLD_ENOUGH_S)
    gateway.options[-1] = "housekeeping.merge_runs=5"
    restart(gateway)
    deadline = time.monotonic() + 90.0
    while b"merging.ended" not in gateway.log_path.read_bytes():
        assert time.monotonic() < deadline, gateway.log_tail()
        time.sleep(0.1)
    assert read_all(gateway.bootstrap, TOPICS) == before
    lines = [json.loads(line) for line in gateway.log_path.read_text().splitlines() if line.startswith("{")]
    (ended,) = [line for line in lines if line["event"] == "merging.ended"]
    assert ended["runs"] > 50 and ended["orphans"] == 0 and not ended["damages"]
    assert ended["max_rss_bytes"] < MOST_RSS_BYTES
    assert len(list(gateway.data_dir.glob("blobs/seg/*/*/*.kfs"))) == ended["segments"]


@pytest.mark.timeout(240)
def test_a_job_reads_and_writes_each_byte_once_in_little_memory(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(NO_OWN_JOBS)
    gateway.start(START_S)
    create_topics(gateway.bootstrap, {"large": 8})
    config = {"bootstrap.servers": gateway.bootstrap, "linger.ms": 0, "batch.size": LARGE_RECORD}
    producer, value = Producer({**config, "log_level": 0}), os.urandom(LARGE_RECORD)
    for number in range(LARGE_RECORDS):
        producer.produce("large", value, partition=number % 8)
        if number % 100 == 0:
            assert producer.flush(READ_S) == 0
    assert producer.flush(READ_S) == 0
    done = merge(gateway, {"due_runs": 2, "tail_ms": 0})
    assert done["run_bytes"] > 0.9 * LARGE_RECORD * LARGE_RECORDS
    assert done["read_bytes"] <= 1.05 * done["run_bytes"]
    assert done["written_bytes"] <= 1.05 * done["run_bytes"]
    assert done["max_rss_bytes"] < MOST_RSS_BYTES
    print(f"{done}")  # noqa: T201


def test_a_job_whose_gateway_is_not_there_ends_with_one_sentence(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory()
    gateway.data_dir.mkdir(parents=True)
    with pytest.raises(JobEnded, match="does a gateway run"):
        merge(gateway)


def test_a_job_ends_when_its_starter_does(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(NO_OWN_JOBS)
    gateway.start(START_S)
    with merging(gateway, EAGER) as job:
        os.kill(job.pid, signal.SIGSTOP)
        job.close_stdin()
        os.kill(job.pid, signal.SIGCONT)
        deadline = time.monotonic() + 20.0
        while job.is_running():
            assert time.monotonic() < deadline
            time.sleep(0.02)
