"""`dragoman transactions` as an operator uses it, against a gateway and, with DRAGOMAN_TEST_TARGET=kafka,
Kafka."""

import json
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException, Producer

from gateway.addresses import parse_address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.batch.records import Producer as BatchProducer
from ledger.batch.records import Record, build_batch
from tests.e2e.conftest import Endpoint
from tests.support.command import Reachable, run_here
from tests.support.kafka import KafkaServer, running_kafka, why_missing
from tests.support.topics import create_topics

TIMEOUT_S: Final = 30.0


def run(endpoint: Reachable, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here(endpoint, "transactions", *arguments)


def json_of(endpoint: Reachable, *arguments: str) -> Any:
    done = run(endpoint, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def opened(endpoint: Endpoint, topic: str) -> Producer:
    """An open transaction in two of three partitions. Its transactional id is the name of the topic."""
    create_topics(endpoint.bootstrap, {topic: 3})
    producer = Producer({"bootstrap.servers": endpoint.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in (0, 2):
        producer.produce(topic, b"open", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_an_open_transaction_is_listed_and_described(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    done = run(endpoint, "list", "--pattern", topic)
    assert done.returncode == 0
    head, line = done.stdout.splitlines()
    assert head.split("  ")[0] == "transactional id" and line.split()[0] == topic and line.endswith("Ongoing")
    (listed,) = json_of(endpoint, "list", "--pattern", topic)
    found = json_of(endpoint, "describe", topic)[0]
    assert listed == {
        "transactional_id": topic,
        "producer_id": found["producer_id"],
        "state": "Ongoing",
    }
    assert (found["state"], found["partitions"]) == ("Ongoing", {topic: [0, 2]})
    assert found["timeout_ms"] == 60_000 and found["started_ms"] > 0
    heading, _, partitions = run(endpoint, "describe", topic).stdout.splitlines()
    assert heading.startswith(f"{topic}: Ongoing, producer {found['producer_id']} epoch ")
    assert heading.endswith(", 2 partitions") and partitions.split() == [topic, "0,", "2"]


def test_the_health_of_a_cluster_names_the_oldest_open_transaction(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    done = run_here(endpoint, "cluster", "health", "--json")
    found = json.loads(done.stdout)["transactions"]
    # Other tests may have left one open.
    assert done.returncode == 0 and found["open"] >= 1 and found["long"] == 0
    assert found["oldest"] and 0 <= found["oldest_ms"] < 600_000
    if found["open"] == 1:
        assert found["oldest"] == topic
    assert f"open transactions: {found['open']}, the oldest" in run_here(endpoint, "cluster", "health").stdout


def test_the_list_is_filtered(endpoint: Endpoint, opened: Producer, topic: str) -> None:
    def ids(*flags: str) -> list[str]:
        return [line["transactional_id"] for line in json_of(endpoint, "list", *flags)]

    producer_id = str(json_of(endpoint, "describe", topic)[0]["producer_id"])
    assert ids("--producer-id", producer_id) == [topic]
    assert topic in ids("--state", "Ongoing") and topic not in ids("--state", "Empty")
    assert topic not in ids("--longer-than", "3600000", "--state", "Ongoing")
    assert topic in ids("--pattern", f"{topic[:-1]}.")
    nothing = run(endpoint, "list", "--pattern", "no-such-id")
    assert nothing.returncode == 0 and "No transactional id matches these filters" in nothing.stderr


def test_a_long_id_is_cut_in_the_table_alone(endpoint: Endpoint, topic: str) -> None:
    long = f"{topic}-" + 300 * "x"
    for name in (topic, long):
        settings = {"bootstrap.servers": endpoint.bootstrap, "transactional.id": name}
        Producer(settings).init_transactions(TIMEOUT_S)
    pattern = ("--pattern", f"{topic}(-x+)?")
    listed = run(endpoint, "list", *pattern).stdout.splitlines()
    assert max(map(len, listed)) < 150 and any(f"{long[:100]}...  " in line for line in listed)
    assert [line["transactional_id"] for line in json_of(endpoint, "list", *pattern)] == [topic, long]


def test_the_filter_by_duration_passes_ids_without_an_open_transaction(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    """As its help says."""

    def states(*flags: str) -> dict[str, str]:
        found = json_of(endpoint, "list", "--pattern", f"{topic}.*", *flags)
        return {line["transactional_id"]: line["state"] for line in found}

    idle = Producer({"bootstrap.servers": endpoint.bootstrap, "transactional.id": f"{topic}-idle"})
    idle.init_transactions(TIMEOUT_S)
    assert states("--longer-than", "3600000") == {f"{topic}-idle": "Empty"}
    opened.commit_transaction(TIMEOUT_S)
    # Kafka responds before it has written the markers.
    assert states("--longer-than", "1")[topic] in ("PrepareCommit", "CompleteCommit")
    assert states("--longer-than", "1", "--state", "Ongoing") == {}


def test_what_cannot_be_listed_or_described_is_said(endpoint: Endpoint) -> None:
    wrong = run(endpoint, "list", "--state", "open")
    assert wrong.returncode == 2 and "states are Empty, Ongoing" in wrong.stderr
    pattern = run(endpoint, "list", "--pattern", "(")
    assert pattern.returncode == 1 and "INVALID_REGULAR_EXPRESSION" in pattern.stderr
    unknown = run(endpoint, "describe", "no-such-id")
    assert unknown.returncode == 1 and "TRANSACTIONAL_ID_NOT_FOUND" in unknown.stderr


def test_what_is_found_is_described_before_what_is_not(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    done = run(endpoint, "describe", "no-such-id", topic, "no-other")
    assert done.returncode == 1 and done.stdout.startswith(f"{topic}: Ongoing")
    first, second = done.stderr.splitlines()
    assert "no-such-id: TRANSACTIONAL_ID_NOT_FOUND" in first and "no-other" in second
    in_json = run(endpoint, "describe", "no-such-id", topic, "--json")
    (found,) = json.loads(in_json.stdout)
    assert in_json.returncode == 1 and found["transactional_id"] == topic


def test_an_operator_aborts_a_transaction_and_fences_its_producer(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    done = run(endpoint, "abort", topic, "--yes")
    assert done.returncode == 0 and f"Aborted the transaction of {topic}" in done.stderr
    assert json_of(endpoint, "describe", topic)[0]["state"] == "Empty"
    with pytest.raises(KafkaException) as raised:
        opened.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    again = run(endpoint, "abort", topic, "--yes")
    assert again.returncode == 1 and "no transaction is open" in again.stderr


def test_an_aborted_transaction_is_printed_as_it_was_before(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    (aborted,) = json_of(endpoint, "abort", topic, "--yes")["aborted"]
    assert (aborted["transactional_id"], aborted["state_before"]) == (topic, "Ongoing")
    assert aborted["partitions"] == {topic: [0, 2]} and "state" not in aborted


def test_a_transaction_that_has_ended_is_not_described_as_open(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    opened.commit_transaction(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while "CompleteCommit" not in (heading := run(endpoint, "describe", topic).stdout):
        assert time.monotonic() < deadline, heading
    assert heading.endswith("timeout 60000 ms\n")


def test_a_transaction_that_its_coordinator_has_open_is_not_ended_in_one_partition(
    endpoint: Endpoint, opened: Producer, topic: str
) -> None:
    partition = ("--partition", f"{topic}:2")
    which = run(endpoint, "abort", *partition)
    assert which.returncode == 0 and "one of these offsets as --start-offset" in which.stderr
    start, producer_id, *_ = which.stdout.splitlines()[1].split()
    assert (start, int(producer_id)) == ("0", json_of(endpoint, "describe", topic)[0]["producer_id"])
    wrong = run(endpoint, "abort", *partition, "--start-offset", "1", "--yes")
    assert wrong.returncode == 2 and "give one of these offsets" in wrong.stderr
    refused = run(endpoint, "abort", *partition, "--start-offset", start, "--yes")
    assert refused.returncode == 1 and not refused.stdout
    (sentence,) = refused.stderr.splitlines()
    assert f"transactional id {topic} has it open" in sentence
    assert sentence.endswith(f"dragoman transactions abort {topic}")
    opened.commit_transaction(TIMEOUT_S)
    read = ("consume", topic, "--isolation-level", "read_committed", "--to-end")
    assert run_here(endpoint, *read).stdout.splitlines() == ["open", "open"]
    ended = run(endpoint, "abort", *partition, "--start-offset", start, "--yes")
    assert ended.returncode == 2 and "no transaction is open in this partition" in ended.stderr


def test_that_nothing_is_open_in_a_partition_is_no_error(endpoint: Endpoint, topic: str) -> None:
    create_topics(endpoint.bootstrap, {topic: 1})
    partition = ("--partition", f"{topic}:0")
    nothing = run(endpoint, "abort", *partition)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr == "No transaction is open in this partition.\n"
    in_json = run(endpoint, "abort", *partition, "--json")
    assert (in_json.returncode, json.loads(in_json.stdout)) == (0, {"open": []})
    assert in_json.stderr == nothing.stderr


def open_without_coordinator(kafka: KafkaServer, topic: str) -> int:
    """A transactional record in partition 1, which is in no transaction of its id. Its producer id."""
    Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic}).init_transactions(TIMEOUT_S)
    found = json_of(kafka, "describe", topic)[0]
    batch = build_batch(
        [Record(value=b"hangs")],
        base_timestamp=time.time_ns() // 1_000_000,
        producer=BatchProducer(found["producer_id"], found["producer_epoch"], 0),
        flags=TRANSACTIONAL_BIT,
    )
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(1, batch)])
    with Client(parse_address(kafka.bootstrap, "bootstrap")) as client:
        # Before version 12 it adds nothing to a transaction.
        response = client.ask(ApiKey.PRODUCE, 11, ProduceRequest(topic, -1, 5_000, [data]))
    assert response.responses[0].partition_responses[0].error_code == 0, response
    return int(found["producer_id"])


def test_an_operator_ends_a_transaction_that_hangs_in_one_partition() -> None:
    """At Kafka alone, which verifies each partition of a transaction unless it is set otherwise."""
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    with running_kafka({"transaction.partition.verification.enable": "false"}) as kafka:
        create_topics(kafka.bootstrap, {"t": 2})
        producer_id = open_without_coordinator(kafka, "t")
        (hanging,) = json.loads(run(kafka, "abort", "--partition", "t:1", "--json").stdout)["open"]
        assert (hanging["producer_id"], hanging["start_offset"]) == (producer_id, 0)
        done = run(kafka, "abort", "--partition", "t:1", "--start-offset", "0", "--yes")
        assert done.returncode == 0, done.stderr
        assert json.loads(run(kafka, "abort", "--partition", "t:1", "--json").stdout) == {"open": []}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ((), "give transactional ids, or --partition"),
        (("a", "--partition", "t:0"), "not both"),
        (("a", "--start-offset", "0"), "--start-offset needs --partition"),
        (("--start-offset", "4"), "--start-offset needs --partition"),
        (("--partition", "t"), "expected TOPIC:N"),
    ],
    ids=["nothing", "both", "an offset of an id", "an offset alone", "no number"],
)
def test_flags_that_contradict_each_other_are_refused(
    endpoint: Endpoint, flags: Sequence[str], complaint: str
) -> None:
    done = run(endpoint, "abort", *flags, "--yes")
    assert done.returncode == 2 and complaint in done.stderr
