"""Members of confluent-kafka (librdkafka)."""

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.e2e.members.saying import HEARTBEAT_MS, POLL_S, SESSION_MS, Orders, Voice, run_members


def member(orders: Orders, number: int, stopping: threading.Event) -> None:
    voice = Voice(number)
    config: dict[str, Any] = {
        "bootstrap.servers": orders.bootstrap,
        "group.id": orders.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky" if orders.cooperative else "range",
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    instance = orders.instance(number)
    if instance is not None:
        config["group.instance.id"] = instance
    consumer = Consumer(config)

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        voice.partitions("assigned", [part.partition for part in partitions])

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        voice.partitions("revoked", [part.partition for part in partitions])

    def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
        voice.partitions("lost", [part.partition for part in partitions])

    consumer.subscribe([orders.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not stopping.is_set():
        messages = consumer.consume(50, POLL_S)
        for failed in (message.error() for message in messages if message.error() is not None):
            assert failed is not None
            if not failed.retriable() and failed.code() != KafkaError._ALL_BROKERS_DOWN:
                voice.say("failed", reason=str(failed))
        taken = [message for message in messages if message.error() is None]
        if taken:
            voice.read((message.partition() or 0, message.offset() or 0) for message in taken)
            _commit(consumer, voice)
    consumer.close()


def _commit(consumer: Consumer, voice: Voice) -> None:
    while True:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            code = error.args[0]
            if code.code() == KafkaError._NO_OFFSET:
                return
            if code.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION):
                voice.say("refused", reason=code.name())
                return
            if not code.retriable() and code.code() not in (KafkaError._TRANSPORT, KafkaError._WAIT_COORD):
                voice.say("failed", reason=f"commit: {code}")
                return
        else:
            return


if __name__ == "__main__":
    run_members(Orders.from_arguments(), member)
