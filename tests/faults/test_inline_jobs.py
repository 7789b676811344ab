"""Jobs over a ledger whose newest records are inside of journal entries: audited where they are, merged
and exported once they were moved into objects, by the local engine and on Spark."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.faults.load import (
    Found,
    Load,
    Place,
    found_in,
    high_watermark,
    new_consumer,
    problems,
    read_all,
)
from tests.faults.test_inline_far import metric
from tests.support.far_stores import ETCD_S3, FarGateway, FarPlace
from tests.support.spark import JAVA_OPTIONS, why_no_spark
from tests.support.topics import create_topics
from tests.support.versions import ROOT

COMMAND: Final = [sys.executable, "-m", "gateway.cli.main"]
TOPICS: Final = {"t": 3}
RECORDS: Final = 600
WAIT_S: Final = 60.0
COMMAND_S: Final = 240.0
LARGE: Final = 20_000
ENGINES: Final[Mapping[str, Sequence[str]]] = {
    "local": (),
    "spark": (
        *("--engine", "spark", "--master", "local[2,4]"),
        *("--spark-conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
    ),
}


def dragoman(*arguments: str) -> Any:
    """What it prints as JSON."""
    finished = subprocess.run(
        [*COMMAND, *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "1000"},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def produced(gateway: FarGateway, name: str, records: int = RECORDS) -> Load:
    load = Load(gateway.bootstrap, name, "t", TOPICS["t"], max_outstanding=10, max_records=records)
    load.start().complete(WAIT_S)
    assert load.failures == []
    return load


def check(gateway: FarGateway, *loads: Load) -> dict[Place, list[Found]]:
    found = read_all(gateway.bootstrap, TOPICS)
    assert problems(found, [ack for load in loads for ack in load.acks]) == []
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("far", [ETCD_S3], indirect=True)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.full)])
def test_jobs_over_records_inside_of_entries(far: FarPlace, tmp_path: Path, engine: str) -> None:
    if engine == "spark" and (reason := why_no_spark()):
        pytest.skip(reason)
    on_engine = ENGINES[engine]
    online = [*far.options(), "--set", f"internal.socket={tmp_path / 'internal.sock'}"]
    gateway = FarGateway(far, tmp_path / "gateway", [*online[4:], "--set", "housekeeping.merge_runs=0"])
    try:
        gateway.start()
        create_topics(gateway.bootstrap, TOPICS)
        first = produced(gateway, "first")
        inside = metric(gateway, "dragoman_inline_entries")
        assert inside > 0
        gateway.kill9()
        audit = dragoman("audit", *far.options(), *on_engine)
        assert audit["damages"] == [] and audit["totals"]["records"] == RECORDS

        gateway.start()
        # A job gets its pin when all is in objects. It merges nothing: what was moved is one run a partition.
        dragoman("compact", "segments", *online, *on_engine)
        assert metric(gateway, "dragoman_inline_entries") == 0
        before = check(gateway, first)
        second = produced(gateway, "second")
        assert metric(gateway, "dragoman_inline_entries") > 0
        exported = dragoman("ledger", "export", f"file:{tmp_path}/target", *online)
        assert exported["batches"] > 0
        after = check(gateway, first, second)
        assert {place: records[: len(before[place])] for place, records in after.items()} == before
    finally:
        gateway.terminate()
    audit = dragoman("audit", *far.options(), *on_engine)
    assert audit["damages"] == [] and audit["totals"]["records"] == 2 * RECORDS


def transact(gateway: FarGateway, transactions: int) -> dict[Place, list[bytes]]:
    """Some are committed, some aborted. Returns the values of those that are committed."""
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap, "transactional.id": "a", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(WAIT_S)
    committed: dict[Place, list[bytes]] = {("t", index): [] for index in range(TOPICS["t"])}
    for number in range(transactions):
        producer.begin_transaction()
        values = [(number % TOPICS["t"], b"%d" % number), ((number + 1) % TOPICS["t"], b"%d+" % number)]
        for partition, value in values:
            producer.produce("t", value, partition=partition)
        if number % 3 == 1:
            assert producer.flush(WAIT_S) == 0
            producer.abort_transaction(WAIT_S)
            continue
        producer.commit_transaction(WAIT_S)
        for partition, value in values:
            committed["t", partition].append(value)
    return committed


def committed_values(gateway: FarGateway) -> dict[Place, list[bytes]]:
    consumer = new_consumer(gateway.bootstrap)  # reads what is committed alone
    places = [("t", index) for index in range(TOPICS["t"])]
    found: dict[Place, list[bytes]] = {place: [] for place in places}
    try:
        ends = {place: high_watermark(consumer, place) for place in places}
        consumer.assign([TopicPartition(*place, 0) for place in places])
        deadline = time.monotonic() + WAIT_S
        while any(
            part.offset < ends[part.topic, part.partition]
            for part in consumer.position([TopicPartition(*place) for place in places])
        ):
            assert time.monotonic() < deadline, "consumers do not come to the end"
            for message in consumer.consume(1000, 0.2):
                place, record = found_in(message)
                found[place].append(record.value)
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("far", [ETCD_S3], indirect=True)
def test_transactions_inside_of_entries_read_the_same_when_they_were_moved(
    far: FarPlace, tmp_path: Path
) -> None:
    online = [*far.options(), "--set", f"internal.socket={tmp_path / 'internal.sock'}"]
    gateway = FarGateway(far, tmp_path / "gateway", [*online[4:], "--set", "housekeeping.merge_runs=0"])
    try:
        gateway.start()
        create_topics(gateway.bootstrap, TOPICS)
        committed = transact(gateway, 20)
        assert metric(gateway, "dragoman_inline_entries") > 0
        assert committed_values(gateway) == committed
        dragoman("compact", "segments", *online)
        assert metric(gateway, "dragoman_inline_entries") == 0
        # All that follows the snapshot is applied again: the move, and transactions before and after it.
        for place, values in transact(gateway, 5).items():
            committed[place] += values
        gateway.kill9()
        gateway.start()
        assert committed_values(gateway) == committed
    finally:
        gateway.terminate()
    assert dragoman("audit", *far.options())["damages"] == []
