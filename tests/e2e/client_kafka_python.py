"""kafka-python."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import TopicAlreadyExistsError

from tests.support.client import (
    CLIENT_TIMEOUT_S,
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


class KafkaPythonClient(ClientUnderTest):
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
        except TopicAlreadyExistsError as error:
            raise TopicExists(topic) from error
        finally:
            admin.close()

    def partition_count(self, topic: str) -> int:
        with self._consumer() as consumer:
            return len(consumer.partitions_for_topic(topic) or ())

    def can_send(self, record: Record) -> bool:
        """It refuses a record without key and value, and headers without value."""
        has_content = record.key is not None or record.value is not None
        return has_content and all(value is not None for _, value in record.headers)

    def produce(self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec is Codec.NONE else codec.value,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(timeout=CLIENT_TIMEOUT_S)
            return [future.get(timeout=CLIENT_TIMEOUT_S).offset for future in futures]
        finally:
            producer.close(timeout=CLIENT_TIMEOUT_S)

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
            assigned = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            position(consumer, assigned, start)
            if on_positioned is not None:
                on_positioned()
            received: list[Received] = []
            while len(received) < count:
                polled = consumer.poll(timeout_ms=500, max_records=count - len(received))
                for messages in polled.values():
                    received.extend(received_from(message) for message in messages)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(received)} of {count} records")
            return received

    def end_offset(self, topic: str, partition: int) -> int:
        requested = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            return int(consumer.end_offsets([requested])[requested])

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, auto_offset_reset="none"
        )
        try:
            yield consumer
        finally:
            consumer.close()


def position(consumer: Any, assigned: Sequence[TopicPartition], start: Start) -> None:
    match start:
        case Earliest():
            consumer.seek_to_beginning(*assigned)
        case Latest():
            consumer.seek_to_end(*assigned)
        case FromOffset(offset):
            for partition in assigned:
                consumer.seek(partition, offset)
        case FromTimestamp(timestamp_ms):
            found = consumer.offsets_for_times(dict.fromkeys(assigned, timestamp_ms))
            ends = consumer.end_offsets(assigned)
            for partition in assigned:
                hit = found[partition]
                consumer.seek(partition, ends[partition] if hit is None else hit.offset)
    for partition in assigned:
        consumer.position(partition)


def received_from(message: Any) -> Received:
    record = Record(
        message.partition, message.timestamp, message.key, message.value, tuple(message.headers or ())
    )
    return Received(message.offset, message.timestamp_type, record)
