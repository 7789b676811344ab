"""confluent-kafka (librdkafka)."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.client import (
    CLIENT_TIMEOUT_S,
    CREATE_TIME,
    ClientUnderTest,
    Codec,
    Earliest,
    FromOffset,
    FromTimestamp,
    Latest,
    Received,
    Record,
    Start,
    TopicExists,
)

LIBRDKAFKA_CREATE_TIME = 1


class ConfluentClient(ClientUnderTest):
    name = "confluent"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(CLIENT_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicExists(topic) from error
            raise

    def partition_count(self, topic: str) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return len(admin.list_topics(topic, CLIENT_TIMEOUT_S).topics[topic].partitions)

    def produce(self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec.value,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 20,
                "message.timeout.ms": int(CLIENT_TIMEOUT_S * 1000),
            }
        )
        offsets = [-1] * len(records)
        failures: list[KafkaError] = []

        def on_delivery(index: int) -> Callable[[KafkaError | None, Any], None]:
            def delivered(error: KafkaError | None, message: Any) -> None:
                if error is not None:
                    failures.append(error)
                else:
                    offsets[index] = message.offset()

            return delivered

        for index, record in enumerate(records):
            while not enqueued(producer, topic, record, on_delivery(index)):
                producer.poll(0.05)
            if index % 1000 == 0:
                producer.poll(0)
        unsent = producer.flush(CLIENT_TIMEOUT_S)
        if unsent or failures:
            raise RuntimeError(f"{unsent} records unsent, {len(failures)} failed: {failures[:3]}")
        return offsets

    def consume(
        self,
        topic: str,
        partitions: Sequence[int],
        start: Start,
        count: int,
        on_positioned: Callable[[], object] | None = None,
    ) -> list[Received]:
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        with self._consumer() as consumer:
            # librdkafka asks for the beginning half a second later when it does not know the leader yet.
            consumer.list_topics(topic, CLIENT_TIMEOUT_S)
            consumer.assign([self._positioned(consumer, topic, partition, start) for partition in partitions])
            if on_positioned is not None:
                on_positioned()
            received: list[Received] = []
            while len(received) < count:
                for message in consumer.consume(min(10_000, count - len(received)), 0.5):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    received.append(received_from(message))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(received)} of {count} records")
            return received

    def start_offset(self, topic: str, partition: int) -> int:
        with self._consumer() as consumer:
            start, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), CLIENT_TIMEOUT_S)
            return int(start)

    def end_offset(self, topic: str, partition: int) -> int:
        with self._consumer() as consumer:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), CLIENT_TIMEOUT_S)
            return int(end)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        # A group id is required even by those that join no group.
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _positioned(self, consumer: Consumer, topic: str, partition: int, start: Start) -> TopicPartition:
        match start:
            case Earliest():
                return TopicPartition(topic, partition, OFFSET_BEGINNING)
            case Latest():
                return TopicPartition(topic, partition, self.end_offset(topic, partition))
            case FromOffset(offset):
                return TopicPartition(topic, partition, offset)
            case FromTimestamp(timestamp_ms):
                requested = [TopicPartition(topic, partition, timestamp_ms)]
                (found,) = consumer.offsets_for_times(requested, CLIENT_TIMEOUT_S)
                return found


def enqueued(producer: Producer, topic: str, record: Record, on_delivery: Callable[..., None]) -> bool:
    """False when the library's queue is full."""
    try:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=on_delivery,
        )
    except BufferError:
        return False
    return True


def received_from(message: Any) -> Received:
    timestamp_type, timestamp_ms = message.timestamp()
    record = Record(
        message.partition(), timestamp_ms, message.key(), message.value(), tuple(message.headers() or ())
    )
    kind = CREATE_TIME if timestamp_type == LIBRDKAFKA_CREATE_TIME else timestamp_type
    return Received(message.offset(), kind, record)
