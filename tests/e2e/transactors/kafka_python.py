"""Transactions of kafka-python."""

import itertools
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaConnectionError, KafkaError, ProducerFencedError

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

POLL_MS = 200
Taken = Mapping[TopicPartition, Sequence[Any]]


class KafkaPython(ProducersByName[KafkaProducer]):
    def initialized(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> KafkaProducer:
        return initialized(bootstrap, transactional_id, timeout_ms)

    def begin(self, producer: str) -> None:
        self.producers[producer].begin_transaction()

    def send(self, producer: str, topic: str, partition: int, values: Iterable[bytes]) -> None:
        sending = self.producers[producer]
        sent = [sending.send(topic, value, partition=partition) for value in values]
        for future in sent:
            future.get(CALL_S)

    def end(self, producer: str, commit: bool) -> None:
        ending = self.producers[producer]
        if commit:
            ending.commit_transaction()
        else:
            ending.abort_transaction()

    def read(self, bootstrap: str, topic: str, partitions: int, committed: bool) -> list[list[str]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
        )
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        found = UntilEnd(partitions)
        while not found.is_over:
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                for record in records:
                    found.add(record.partition, record.value)
        consumer.close()
        return found.values

    def copy(self, copying: Copying) -> None:
        producer = initialized(copying.bootstrap, copying.transactional_id, 60_000)
        consumer = KafkaConsumer(
            copying.source,
            bootstrap_servers=copying.bootstrap,
            group_id=copying.group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_records=copying.batch,
            fetch_max_wait_ms=100,
            reconnect_backoff_max_ms=500,
        )
        while not consumer.partitions_for_topic(copying.source):
            # A group whose leader learns of them only while it joins may stand still (docs/clients.md).
            time.sleep(POLL_MS / 1000)
        ends = 0
        for number in itertools.count(1):
            if ends == copying.partitions:
                break
            taken: Taken = {}
            while not taken:
                taken = polled(consumer)
            producer.begin_transaction()
            try:
                transfer(producer, consumer, copying, taken)
                if not copying.is_aborted(number):
                    producer.commit_transaction()
                    ends += sum(record.value == END.encode() for one in taken.values() for record in one)
                    continue
                producer.flush(CALL_S)
            except ProducerFencedError:
                raise
            except KafkaError as error:
                sys.stderr.write(f"aborted: {error!r}\n")
            producer.abort_transaction()
            rewind(consumer)
        consumer.close()


def initialized(bootstrap: str, transactional_id: str, timeout_ms: int) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        reconnect_backoff_max_ms=500,
    )
    producer.init_transactions()
    return producer


def polled(consumer: KafkaConsumer) -> Taken:
    """Now and then the library lets an application see that a restart refuses its connection."""
    try:
        taken: Taken = consumer.poll(timeout_ms=POLL_MS)
    except KafkaConnectionError:
        return {}
    return taken


def transfer(producer: KafkaProducer, consumer: KafkaConsumer, copying: Copying, taken: Taken) -> None:
    """All that one transaction has."""
    for place, records in taken.items():
        for record in records:
            producer.send(copying.target, record.value, partition=place.partition)
    time.sleep(copying.pause_s)
    following = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in taken.items()}
    producer.send_offsets_to_transaction(following, consumer.group_metadata())


def rewind(consumer: KafkaConsumer) -> None:
    """To what the group has committed."""
    for place in consumer.assignment():
        consumer.seek(place, consumer.committed(place) or 0)


if __name__ == "__main__":
    serve(KafkaPython())
