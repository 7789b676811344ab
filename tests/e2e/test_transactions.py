"""Transactions as a client library sees them: what is committed is read once, what is aborted never."""

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.conftest import Endpoint
from tests.e2e.transactional_confluent import PARTITIONS, TIMEOUT_S, consumer, producer, read, write


def test_committed_records_are_read_and_aborted_ones_are_not(endpoint: Endpoint, topic: str) -> None:
    ConfluentClient(endpoint.bootstrap).create_topic(topic, PARTITIONS)
    writing = producer(endpoint.bootstrap, topic)
    committed, aborted = [b"a0", b"a1", b"a2", b"a3"], [b"b0", b"b1"]
    writing.begin_transaction()
    write(writing, topic, committed)
    writing.commit_transaction(TIMEOUT_S)
    writing.begin_transaction()
    write(writing, topic, aborted)
    writing.abort_transaction(TIMEOUT_S)
    writing.begin_transaction()
    write(writing, topic, [b"c0"])
    assert read(endpoint.bootstrap, topic, "read_committed") == committed
    writing.commit_transaction(TIMEOUT_S)
    assert read(endpoint.bootstrap, topic, "read_committed") == [*committed, b"c0"]
    assert read(endpoint.bootstrap, topic, "read_uncommitted") == sorted([*committed, *aborted, b"c0"])


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_offsets_are_committed_with_their_transaction(
    endpoint: Endpoint, topic: str, is_commit: bool
) -> None:
    ConfluentClient(endpoint.bootstrap).create_topic(topic, PARTITIONS)
    writing, group = producer(endpoint.bootstrap, topic), consumer(endpoint.bootstrap, topic)
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


def test_a_producer_is_fenced_by_another_one_of_its_id(endpoint: Endpoint, topic: str) -> None:
    ConfluentClient(endpoint.bootstrap).create_topic(topic, PARTITIONS)
    zombie = producer(endpoint.bootstrap, topic)
    zombie.begin_transaction()
    write(zombie, topic, [b"zombie"])
    second = producer(endpoint.bootstrap, topic)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    write(second, topic, [b"second"])
    second.commit_transaction(TIMEOUT_S)
    assert read(endpoint.bootstrap, topic, "read_committed") == [b"second"]
