"""Transactions as a client library sees them: what is committed is read once, what is aborted never."""

from collections.abc import Sequence
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.e2e.conftest import Endpoint
from tests.support.client import ClientUnderTest

PARTITIONS: Final = 3
TIMEOUT_S: Final = 30.0


def producer(endpoint: Endpoint, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": endpoint.bootstrap, "transactional.id": transactional_id})
    made.init_transactions(TIMEOUT_S)
    return made


def consumer(endpoint: Endpoint, group: str, **configs: Any) -> Consumer:
    return Consumer({"bootstrap.servers": endpoint.bootstrap, "group.id": group, **configs})


def read(endpoint: Endpoint, topic: str, level: str) -> list[bytes]:
    """Values up to the end that readers of this isolation level have."""
    reading = consumer(
        endpoint, f"{topic}-{level}", **{"isolation.level": level, "enable.partition.eof": True}
    )
    reading.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
    values: list[bytes] = []
    ends: set[int | None] = set()
    try:
        while len(ends) < PARTITIONS:
            message = reading.poll(TIMEOUT_S)
            assert message is not None
            if message.error() is not None:
                ends.add(message.partition())
            else:
                value = message.value()
                assert isinstance(value, bytes)
                values.append(value)
    finally:
        reading.close()
    return sorted(values)


def write(producer: Producer, topic: str, values: Sequence[bytes]) -> None:
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % PARTITIONS)
    producer.flush(TIMEOUT_S)


def test_committed_records_are_read_and_aborted_ones_are_not(
    creator: ClientUnderTest, endpoint: Endpoint, topic: str
) -> None:
    creator.create_topic(topic, PARTITIONS)
    writing = producer(endpoint, topic)
    committed, aborted = [b"a0", b"a1", b"a2", b"a3"], [b"b0", b"b1"]
    writing.begin_transaction()
    write(writing, topic, committed)
    writing.commit_transaction(TIMEOUT_S)
    writing.begin_transaction()
    write(writing, topic, aborted)
    writing.abort_transaction(TIMEOUT_S)
    writing.begin_transaction()
    write(writing, topic, [b"c0"])
    assert read(endpoint, topic, "read_committed") == committed
    writing.commit_transaction(TIMEOUT_S)
    assert read(endpoint, topic, "read_committed") == [*committed, b"c0"]
    assert read(endpoint, topic, "read_uncommitted") == sorted([*committed, *aborted, b"c0"])


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_offsets_are_committed_with_their_transaction(
    creator: ClientUnderTest, endpoint: Endpoint, topic: str, is_commit: bool
) -> None:
    creator.create_topic(topic, PARTITIONS)
    writing, group = producer(endpoint, topic), consumer(endpoint, topic)
    places = [TopicPartition(topic, 0, 5), TopicPartition(topic, 2, 7)]
    try:
        writing.begin_transaction()
        write(writing, topic, [b"x"])
        writing.send_offsets_to_transaction(places, group.consumer_group_metadata(), TIMEOUT_S)
        if is_commit:
            writing.commit_transaction(TIMEOUT_S)
        else:
            writing.abort_transaction(TIMEOUT_S)
        found = group.committed([TopicPartition(topic, at) for at in range(PARTITIONS)], TIMEOUT_S)
        none = -1001
        assert [one.offset for one in found] == ([5, none, 7] if is_commit else [none] * 3)
    finally:
        group.close()


def test_a_producer_is_fenced_by_another_one_of_its_id(
    creator: ClientUnderTest, endpoint: Endpoint, topic: str
) -> None:
    creator.create_topic(topic, PARTITIONS)
    zombie = producer(endpoint, topic)
    zombie.begin_transaction()
    write(zombie, topic, [b"zombie"])
    second = producer(endpoint, topic)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    write(second, topic, [b"second"])
    second.commit_transaction(TIMEOUT_S)
    assert read(endpoint, topic, "read_committed") == [b"second"]
