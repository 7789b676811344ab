"""Transactions of confluent-kafka (librdkafka)."""

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.e2e.transactors.orders import (
    CALL_S,
    END,
    HEARTBEAT_MS,
    SESSION_MS,
    Copying,
    ProducersByName,
    UntilEnd,
    serve,
)

POLL_S = 0.2


class Confluent(ProducersByName[Producer]):
    def initialized(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> Producer:
        return initialized(bootstrap, transactional_id, timeout_ms)

    def begin(self, producer: str) -> None:
        self.producers[producer].begin_transaction()

    def send(self, producer: str, topic: str, partition: int, values: Iterable[bytes]) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            self.producers[producer].produce(topic, value, partition=partition, on_delivery=delivered)
        self.producers[producer].flush(CALL_S)
        if failures:
            raise KafkaException(failures[0])

    def end(self, producer: str, commit: bool) -> None:
        ending = self.producers[producer]
        retried(ending.commit_transaction if commit else ending.abort_transaction)

    def read(self, bootstrap: str, topic: str, partitions: int, committed: bool) -> list[list[str]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": isolation,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found = UntilEnd(partitions)
        while not found.is_over:
            for message in consumer.consume(100, POLL_S):
                if message.error() is not None:
                    raise KafkaException(message.error())
                found.add(place_of(message)[1], message.value() or b"")
        consumer.close()
        return found.values

    def copy(self, copying: Copying) -> None:
        producer = initialized(copying.bootstrap, copying.transactional_id, 60_000)
        consumer = Consumer(
            {
                "bootstrap.servers": copying.bootstrap,
                "group.id": copying.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
            }
        )
        consumer.subscribe([copying.source])
        ends = 0
        for number in itertools.count(1):
            if ends == copying.partitions:
                break
            taken: list[Message] = []
            while not taken:
                taken = [one for one in consumer.consume(copying.batch, POLL_S) if one.error() is None]
            producer.begin_transaction()
            try:
                transfer(producer, consumer, copying, taken)
                if not copying.is_aborted(number):
                    retried(producer.commit_transaction)
                    ends += sum(message.value() == END.encode() for message in taken)
                    continue
                producer.flush(CALL_S)
            except KafkaException as error:
                sys.stderr.write(f"aborted: {error}\n")
                if not error.args[0].txn_requires_abort():
                    raise
            retried(producer.abort_transaction)
            rewind(consumer)
        consumer.close()

    def kind_of(self, error: Exception) -> str:
        return error.args[0].name() if isinstance(error, KafkaException) else type(error).__name__


def initialized(bootstrap: str, transactional_id: str, timeout_ms: int) -> Producer:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms,
        "linger.ms": 0,
        "reconnect.backoff.max.ms": 500,
    }
    producer = Producer(config)
    retried(producer.init_transactions)
    return producer


def transfer(producer: Producer, consumer: Consumer, copying: Copying, taken: Sequence[Message]) -> None:
    """All that one transaction has."""
    following: dict[tuple[str, int], int] = {}
    for message in taken:
        topic, partition, offset = place_of(message)
        producer.produce(copying.target, message.value(), partition=partition)
        following[topic, partition] = offset + 1
    time.sleep(copying.pause_s)
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in following.items()]
    member = consumer.consumer_group_metadata()
    retried(lambda: producer.send_offsets_to_transaction(offsets, member, CALL_S))


def place_of(message: Message) -> tuple[str, int, int]:
    """Topic, partition and offset of one that has arrived."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return topic, partition, offset


def rewind(consumer: Consumer) -> None:
    """To what the group has committed."""
    # After a rebalance what was assigned is read from there anyway.
    with suppress(KafkaException):
        for place in retried_value(lambda: consumer.committed(consumer.assignment(), CALL_S)):
            consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


def retried(call: Callable[..., object]) -> None:
    retried_value(call)


def retried_value(call: Callable[..., Any]) -> Any:
    """As the library's documentation says: a retriable error means the same call again."""
    while True:
        try:
            return call()
        except KafkaException as error:
            sys.stderr.write(f"repeated: {error}\n")
            if not error.args[0].retriable():
                raise


if __name__ == "__main__":
    serve(Confluent())
