"""kafka-transactions.sh says and does the same at a gateway and at Apache Kafka."""

import re
import time
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.e2e.conftest import Endpoint
from tests.e2e.kafka_tools import Filter, SideBySide, Tool, without_reason
from tests.support.kafka import KafkaServer
from tests.support.tool_runner import ToolRunner
from tests.support.topics import create_topics

TIMEOUT_S: Final = 30.0
FIGURES: Final = re.compile(r"\b\d+\b")
SPACES: Final = re.compile(r"[ \t]+")


@pytest.fixture
def both(tool_runner: ToolRunner, kafka_oracle: KafkaServer, endpoint: Endpoint) -> SideBySide:
    return SideBySide(tool_runner, kafka_oracle, endpoint)


def begun(target: Endpoint, topic: str) -> Producer:
    """A producer with an open transaction of one record in partition 0. Its id is the name of the topic."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


@pytest.fixture
def opened(both: SideBySide, topic: str) -> Iterator[list[Producer]]:
    """An open transaction at each."""
    targets = (both.kafka, both.endpoint)
    for target in targets:
        create_topics(target.bootstrap, {topic: 2})
    yield [begun(target, topic) for target in targets]


def without_figures(line: str) -> str:
    """Node, producer ids, times: of each endpoint's own."""
    return SPACES.sub(" ", FIGURES.sub("<n>", line)).strip()


def about(topic: str) -> Filter:
    """The lines of one id: there may be others, of other tests."""
    return lambda line: without_figures(line) if topic in line or "TransactionalId" in line else None


def committed_end(target: Endpoint, topic: str) -> int:
    """Where readers of committed records are at the end."""
    reading = Consumer({"bootstrap.servers": target.bootstrap, "group.id": f"{topic}-end"})
    try:
        _, end = reading.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    finally:
        reading.close()
    return int(end)


def test_transactions_are_listed(both: SideBySide, opened: list[Producer], topic: str) -> None:
    said = both.run(Tool.TRANSACTIONS, "list", compared=about(topic), ordered=False)
    shown = without_figures(topic)
    assert said.exit_code == 0 and any(shown in line and "Ongoing" in line for line in said.lines)
    for flags in (("--transactional-id-pattern", f"{topic[:-1]}."), ("--duration-filter", "1")):
        time.sleep(0.01)
        said = both.run(Tool.TRANSACTIONS, "list", *flags, compared=about(topic), ordered=False)
        assert any(shown in line for line in said.lines)
    said = both.run(Tool.TRANSACTIONS, "list", "--duration-filter", "3600000", compared=about(topic))
    assert not any(shown in line for line in said.lines)


def test_a_pattern_that_is_none_is_refused(both: SideBySide) -> None:
    # Each process counts its admin clients, and names one here.
    pattern = ("--transactional-id-pattern", "(")
    said = both.run(Tool.TRANSACTIONS, "list", *pattern, compared=without_figures)
    assert said.exit_code == 1 and any("INVALID_REGULAR_EXPRESSION" in line for line in said.lines)


def test_a_transaction_is_described_by_its_id_and_by_its_partition(
    both: SideBySide, opened: list[Producer], topic: str
) -> None:
    said = both.run(Tool.TRANSACTIONS, "describe", "--transactional-id", topic, compared=without_figures)
    assert said.exit_code == 0 and any(f"{without_figures(topic)}-<n>" in line for line in said.lines)
    place = ("--topic", topic, "--partition", "0")
    said = both.run(Tool.TRANSACTIONS, "describe-producers", *place, compared=without_figures)
    assert said.exit_code == 0 and len(said.lines) == 2
    unknown = both.run(
        Tool.TRANSACTIONS, "describe", "--transactional-id", f"{topic}-no", compared=without_reason
    )
    assert unknown.exit_code == 1


def test_a_transaction_is_aborted_in_its_partition(
    both: SideBySide, opened: list[Producer], topic: str
) -> None:
    place = ("--topic", topic, "--partition", "0")
    assert {committed_end(target, topic) for target in (both.kafka, both.endpoint)} == {0}
    wrong = both.run(Tool.TRANSACTIONS, "abort", *place, "--start-offset", "7", compared=without_reason)
    assert wrong.exit_code == 1
    said = both.run(Tool.TRANSACTIONS, "abort", *place, "--start-offset", "0")
    assert said.exit_code == 0
    assert {committed_end(target, topic) for target in (both.kafka, both.endpoint)} == {2}


def test_a_transaction_is_terminated_by_its_id(both: SideBySide, opened: list[Producer], topic: str) -> None:
    said = both.run(Tool.TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", topic)
    assert said.exit_code == 0
    for producer in opened:
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(TIMEOUT_S)
        assert raised.value.args[0].fatal()
    assert {committed_end(target, topic) for target in (both.kafka, both.endpoint)} == {2}


def test_nothing_hangs(both: SideBySide, opened: list[Producer], topic: str) -> None:
    said = both.run(Tool.TRANSACTIONS, "find-hanging", "--topic", topic, "--partition", "0")
    assert said.exit_code == 0
