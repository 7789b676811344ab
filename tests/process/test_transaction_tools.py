"""Transactions for operators: what tools see of them, how partitions are freed, and what times out."""

import json
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from typer.testing import CliRunner

from gateway.addresses import parse_address
from gateway.cli.client import Client
from gateway.cli.main import app
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsRequest, TopicData
from gateway.wire.messages.generated.list_transactions import ListTransactionsRequest
from gateway.wire.messages.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.process.test_admin_pages import WAIT_S, samples
from tests.process.test_topic_metrics import wait_for
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.topics import create_topics

TOPIC: Final = "orders"
TIMED_OUT: Final = 'dragoman_transactions_total{outcome="timed_out"}'


@pytest.fixture
def gateway(gateway_factory: GatewayFactory) -> Gateway:
    interval = "transactions.transaction.abort.timed.out.transaction.cleanup.interval.ms=100"
    started = gateway_factory(["--set", interval])
    started.start()
    create_topics(started.bootstrap, {TOPIC: 2})
    return started


@pytest.fixture
def client(gateway: Gateway) -> Iterator[Client]:
    with Client(parse_address(gateway.bootstrap, "bootstrap")) as connected:
        yield connected


def opened(gateway: Gateway, name: str, timeout_ms: int = 60_000, partition: int = 0) -> Producer:
    """A producer with a record in an open transaction."""
    producer = Producer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": min(timeout_ms, 10_000),
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=partition)
    assert producer.flush(WAIT_S) == 0
    return producer


def described(client: Client, *names: str) -> list[Any]:
    response = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(list(names)))
    return list(response.transaction_states)


def listed(client: Client, **filters: Any) -> list[tuple[str, str]]:
    response = client.ask(ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest(**filters))
    assert response.error_code == 0 and not response.unknown_state_filters
    return sorted((each.transactional_id, each.transaction_state) for each in response.transaction_states)


def active(client: Client, partition: int) -> list[Any]:
    request = DescribeProducersRequest([TopicRequest(TOPIC, [partition])])
    response = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    return list(response.topics[0].partitions[0].active_producers)


def written(client: Client, producer_id: int, epoch: int, **partitions: list[int]) -> dict[str, list[int]]:
    """The error of each partition after the marker of an abort."""
    topics = [WritableTxnMarkerTopic(name, indexes) for name, indexes in partitions.items()]
    request = WriteTxnMarkersRequest([WritableTxnMarker(producer_id, epoch, False, topics)])
    (marker,) = client.ask(ApiKey.WRITE_TXN_MARKERS, 1, request).markers
    return {topic.name: [partition.error_code for partition in topic.partitions] for topic in marker.topics}


def committed_end(gateway: Gateway, partition: int = 0) -> int:
    """Where readers of committed records are at the end."""
    reading = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "ends"})
    try:
        _, end = reading.get_watermark_offsets(TopicPartition(TOPIC, partition), WAIT_S)
    finally:
        reading.close()
    return int(end)


def test_a_transaction_is_described_while_it_is_open_and_after_its_end(
    gateway: Gateway, client: Client
) -> None:
    begun_ms = time.time() * 1000
    producer = opened(gateway, "a")
    found, unknown, empty = described(client, "a", "unknown", "")
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert 0 <= found.transaction_start_time_ms - begun_ms < WAIT_S * 1000
    assert found.topics == [TopicData(TOPIC, [0])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    (writing,) = active(client, 0)
    assert (writing.producer_id, writing.current_txn_start_offset) == (found.producer_id, 0)
    assert writing.coordinator_epoch == -1
    producer.commit_transaction(WAIT_S)
    (after,) = described(client, "a")
    assert (after.transaction_state, after.topics) == ("CompleteCommit", [])
    (writing,) = active(client, 0)
    assert (writing.coordinator_epoch, writing.current_txn_start_offset) == (0, -1)


def test_transactions_are_listed_by_state_producer_duration_and_pattern(
    gateway: Gateway, client: Client
) -> None:
    producers = [opened(gateway, name) for name in ("app-1", "app-2", "other")]
    producers[1].abort_transaction(WAIT_S)
    assert listed(client) == [("app-1", "Ongoing"), ("app-2", "CompleteAbort"), ("other", "Ongoing")]
    assert listed(client, state_filters=["Ongoing", "Empty"]) == [("app-1", "Ongoing"), ("other", "Ongoing")]
    (app,) = described(client, "app-1")
    assert listed(client, producer_id_filters=[app.producer_id, 999]) == [("app-1", "Ongoing")]
    assert listed(client, transactional_id_pattern="app-.") == listed(client)[:2]
    assert listed(client, transactional_id_pattern="app") == []
    assert listed(client, duration_filter=3_600_000) == []
    wait_for(lambda: len(listed(client, duration_filter=1)) == 3)
    for pattern, error in (("(", ErrorCode.INVALID_REGULAR_EXPRESSION), ("(a|a)*b", ErrorCode.NONE)):
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        response = client.ask(ApiKey.LIST_TRANSACTIONS, 2, request)
        assert (response.error_code, response.transaction_states) == (error, [])
    response = client.ask(ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest(["Ongoing", "ongoing", "no"]))
    assert response.unknown_state_filters == ["ongoing", "no"]
    assert len(response.transaction_states) == 2


def test_an_operator_frees_a_partition_of_a_transaction_that_hangs(gateway: Gateway, client: Client) -> None:
    producer = opened(gateway, "hangs")
    (found,) = described(client, "hangs")
    assert committed_end(gateway) == 0
    producer_id, epoch = found.producer_id, found.producer_epoch
    errors = written(client, producer_id, epoch, **{TOPIC: [0, 7], "nowhere": [0]})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {TOPIC: [0, unknown], "nowhere": [unknown]}
    assert committed_end(gateway) == 2
    assert active(client, 0)[0].current_txn_start_offset == -1
    log = gateway.log_path.read_text()
    assert log.count("transactions.marked") == 1 and f"{TOPIC}-0" in log
    # A marker of a later epoch fences the producer there.
    assert written(client, producer_id, epoch + 5, **{TOPIC: [0]}) == {TOPIC: [0]}
    assert written(client, producer_id, epoch, **{TOPIC: [0]}) == {TOPIC: [ErrorCode.INVALID_PRODUCER_EPOCH]}
    producer.produce(TOPIC, b"late", partition=0)
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)


def test_a_new_producer_that_aborts_an_open_transaction_leaves_a_line(gateway: Gateway) -> None:
    opened(gateway, "taken")
    fencing = opened(gateway, "taken")
    fencing.commit_transaction(WAIT_S)
    opened(gateway, "taken").commit_transaction(WAIT_S)
    (line,) = [line for line in gateway.log_path.read_text().splitlines() if "transactions.fenced" in line]
    event = json.loads(line)
    assert (event["transactional_id"], event["level"]) == ("taken", "info")
    assert event["principal"] and event["peer"] == "127.0.0.1" and event["client_id"] == "rdkafka"


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (1, -1), (2**63 - 1, 0)])
def test_a_marker_that_cannot_be_is_refused(
    gateway: Gateway, client: Client, producer_id: int, epoch: int
) -> None:
    assert written(client, producer_id, epoch, **{TOPIC: [0]}) == {TOPIC: [ErrorCode.UNKNOWN_SERVER_ERROR]}
    opened(gateway, "after").commit_transaction(WAIT_S)


def test_markers_do_not_make_partitions_remember_more_producers_than_they_may(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(["--set", "limits.partition_producers=100"])
    gateway.start()
    create_topics(gateway.bootstrap, {TOPIC: 1})
    with Client(parse_address(gateway.bootstrap, "bootstrap")) as client:
        errors = [written(client, producer_id, 0, **{TOPIC: [0]})[TOPIC] for producer_id in range(1000, 1102)]
    assert errors == [[0]] * 100 + [[ErrorCode.NOT_ENOUGH_REPLICAS]] * 2


def test_a_transaction_that_takes_too_long_is_aborted_and_said_so(gateway: Gateway, client: Client) -> None:
    producer = opened(gateway, "slow", timeout_ms=1_500)
    assert samples(gateway)["dragoman_open_transactions"] == 1
    assert samples(gateway)["dragoman_oldest_transaction_seconds"] > 0
    wait_for(lambda: samples(gateway)[TIMED_OUT] == 1)
    (after,) = described(client, "slow")
    assert after.transaction_state == "CompleteAbort"
    assert committed_end(gateway) == 2
    assert gateway.log_path.read_text().count("transaction.timed_out") == 1
    assert samples(gateway)['dragoman_transactional_ids{state="CompleteAbort"}'] == 1
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(WAIT_S)
    assert raised.value.args[0].fatal()


def test_each_end_of_a_transaction_is_counted_once_by_its_outcome(gateway: Gateway) -> None:
    producer = opened(gateway, "a")
    producer.commit_transaction(WAIT_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, b"again")
        producer.flush(WAIT_S)
        end(WAIT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"left open")
    producer.flush(WAIT_S)
    opened(gateway, "a").commit_transaction(WAIT_S)
    counted = samples(gateway)
    found = {
        outcome: counted[f'dragoman_transactions_total{{outcome="{outcome}"}}']
        for outcome in ("committed", "aborted", "fenced", "timed_out")
    }
    assert found == {"committed": 3, "aborted": 1, "fenced": 1, "timed_out": 0}


def test_doctor_says_which_transactions_the_next_gateway_goes_on_with(gateway: Gateway) -> None:
    opened(gateway, "billing-1", timeout_ms=600_000)
    gateway.stop()
    done = CliRunner().invoke(app, ["doctor", "--json", "--data-dir", str(gateway.data_dir)])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["findings"]) == (0, [])
    (note,) = [note for note in said["notes"] if note.startswith("transactions: ")]
    assert note.startswith("transactions: 1 is open, the oldest (billing-1) since 20")
