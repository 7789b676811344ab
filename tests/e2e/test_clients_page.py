"""docs/clients.md names the clients that are tested, and what they cannot do."""

import inspect
import zipfile

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from tests.e2e.client_kafkajs import KafkajsClient
from tests.e2e.client_kcat import KcatClient
from tests.support.kafka import KAFKA_JARS
from tests.support.versions import ROOT
from tests.support.workers import CLIENT_NAMES

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
CLIENTS, _, SETTINGS = PAGE.partition("## Settings that matter")
TABLE = [row.split("|")[1:-1] for row in SETTINGS.partition("\n## ")[0].splitlines() if row.startswith("|")]
ROWS = {
    name.strip(): limits
    for _, name, _, _, limits, _ in (row.split("|") for row in CLIENTS.splitlines() if row.startswith("|"))
    if name.strip() not in ("client", "---")
}


def test_every_client_of_the_tests_has_a_row() -> None:
    assert tuple(ROWS) == CLIENT_NAMES


def test_what_a_client_cannot_do_is_said_in_its_row() -> None:
    for client in (KafkajsClient, KcatClient):
        name = "kcat" if client is KcatClient else "kafkajs"
        assert all(reason in ROWS[name] for reason in client.cannot.values())


def settings_of(column: int) -> dict[str, str]:
    """Name and value of each setting in a column of the table."""
    cells = [row[column].strip().strip("`") for row in TABLE[2:]]
    return dict(cell.split("=", 1) for cell in cells if cell)


def test_librdkafka_takes_its_settings() -> None:
    settings = settings_of(1)
    assert len(settings) == 9
    wanted = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
    of_consumers = {
        name for name in settings if name.startswith(("fetch", "max.partition", "group", "allow"))
    }
    Producer({**wanted, **{name: value for name, value in settings.items() if name not in of_consumers}})
    own = {name: settings[name] for name in of_consumers}
    Consumer({**wanted, "group.id": "g", **own}).close()


def test_java_knows_its_settings() -> None:
    reason = KAFKA_JARS.why_missing()
    if reason is not None:
        pytest.skip(reason)
    (jar,) = KAFKA_JARS.fetched().glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as classes:
        known = b"".join(
            classes.read(f"org/apache/kafka/clients/{name}.class")
            for name in ("producer/ProducerConfig", "consumer/ConsumerConfig", "CommonClientConfigs")
        )
    for name in settings_of(2):
        assert name.encode() in known, name


def test_kafka_python_knows_its_settings() -> None:
    known = {**KafkaProducer.DEFAULT_CONFIG, **KafkaConsumer.DEFAULT_CONFIG}
    assert settings_of(3).keys() <= known.keys()


def test_aiokafka_knows_its_settings() -> None:
    known = {
        name
        for client in (AIOKafkaProducer, AIOKafkaConsumer)
        for name in inspect.signature(client.__init__).parameters
    }
    assert settings_of(4).keys() <= known
