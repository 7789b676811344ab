"""The oracle is a real broker: it takes records, keeps them over a restart and leaves nothing behind."""

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka import KafkaServer, running_kafka
from tests.support.raw import Outcome, raw_exchange, request

API_VERSIONS = 18


def test_the_oracle_answers_api_versions_of_the_pinned_kafka(kafka_oracle: KafkaServer) -> None:
    response = raw_exchange(kafka_oracle.host, kafka_oracle.port, request(API_VERSIONS, 0, correlation_id=7))
    assert isinstance(response, bytes)
    assert response[:6] == b"\0\0\0\7" + b"\0\0"


def test_the_oracle_closes_a_connection_that_sends_a_negative_length(kafka_oracle: KafkaServer) -> None:
    assert raw_exchange(kafka_oracle.host, kafka_oracle.port, b"\xff\xff\xff\xff") is Outcome.CLOSED


def test_a_broker_keeps_its_port_and_records_over_a_restart_and_leaves_nothing(
    kafka_oracle: KafkaServer,
) -> None:
    assert kafka_oracle.pid
    with running_kafka({"num.partitions": "3"}) as server:
        produced_to(server, b"kept")
        port = server.port
        server.restart()
        assert server.port == port
        assert first_record(server) == b"kept"
        directory: Path = server.directory
    assert not directory.exists()


def produced_to(server: KafkaServer, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("oracle-restart", value, partition=2)
    assert producer.flush(30) == 0


def first_record(server: KafkaServer) -> bytes:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition("oracle-restart", 2, 0)])
        record = consumer.poll(30)
        assert record is not None and record.error() is None
        value = record.value()
        assert value is not None
        return value
    finally:
        consumer.close()
