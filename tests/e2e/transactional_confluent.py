"""Transactional producers, and readers of each isolation level, with confluent-kafka."""

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS: Final = 3
TIMEOUT_S: Final = 30.0


def producer(bootstrap: str, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    made.init_transactions(TIMEOUT_S)
    return made


def consumer(bootstrap: str, group: str, **configs: Any) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **configs})


def read(bootstrap: str, topic: str, level: str, partitions: int = PARTITIONS) -> list[bytes]:
    """Values up to the end that readers of this isolation level have."""
    reading = consumer(
        bootstrap, f"{topic}-{level}", **{"isolation.level": level, "enable.partition.eof": True}
    )
    reading.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
    values: list[bytes] = []
    ends: set[int | None] = set()
    try:
        while len(ends) < partitions:
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
