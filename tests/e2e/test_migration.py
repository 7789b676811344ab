"""docs/migration.md: MirrorMaker 2 brings everything from an Apache Kafka to a gateway, and back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.e2e.conftest import Endpoint
from tests.e2e.migration import (
    CANARY,
    PAYMENTS,
    Mirror,
    Scale,
    commit,
    differences,
    dragoman,
    fill,
    lags,
    produce,
    rows_of,
    same_records,
    set_to_lag_of,
    transact,
    until_mirrored,
)
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.kafka import MIRROR_JARS, KafkaServer, running_kafka

SMALL = Scale(topics=3, records=600, groups=2)
BIG = Scale(topics=20, records=100_000, groups=10)
AT_THE_END = "billing-0"
"""The group that has read everything."""
WAIT_S = 150.0


@pytest.fixture
def kafka() -> Iterator[KafkaServer]:
    """With nothing in it."""
    reason = MIRROR_JARS.why_missing()
    if reason is not None:
        pytest.skip(reason)
    with running_kafka() as server:
        yield server


@pytest.fixture
def gateway(gateway_factory: GatewayFactory) -> Gateway:
    gateway = gateway_factory([])
    gateway.start()
    return gateway


@pytest.mark.timeout(300)
def test_a_mirror_brings_topics_configs_records_and_groups(
    kafka: KafkaServer, gateway: Gateway, tmp_path: Path
) -> None:
    mirrored(kafka, gateway, tmp_path, SMALL)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scale", [SMALL, BIG], ids=["small", "big"])
def test_a_mirror_brings_everything_there_and_what_is_new_back(
    kafka: KafkaServer, gateway: Gateway, tmp_path: Path, scale: Scale
) -> None:
    topics, groups = mirrored(kafka, gateway, tmp_path, scale)
    wait_s = WAIT_S + scale.records / 300
    # The mirror has its positions before anything else is written to the gateway.
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([NewTopic(CANARY, 1)])[CANARY].result(CLIENT_TIMEOUT_S)
    with Mirror(tmp_path, "back-to-kafka.properties", kafka, gateway) as running:
        running.wait_until(lambda: canary_came(gateway, kafka), wait_s)
        produce(gateway, topics, 100, first=scale.records + 100)
        commit(gateway, topics, 1)
        until_mirrored(running, kafka, gateway, wait_s, AT_THE_END)
    for group in groups:
        set_to_lag_of(kafka, gateway, group)
        assert lags(kafka, group) == lags(gateway, group)
    for topic in topics:
        assert same_records(rows_of(kafka, topic), rows_of(gateway, topic)), topic
    assert differences(kafka, gateway, "--records", "--topics", ",".join(topics)) == []


def mirrored(
    kafka: KafkaServer, gateway: Gateway, directory: Path, scale: Scale
) -> tuple[list[str], list[str]]:
    """Fill Kafka and bring all of it to the gateway. Topics and groups."""
    topics = fill(kafka, scale)
    transact(kafka, PAYMENTS)
    groups = list(commit(kafka, topics, scale.groups))
    assert {one["kind"] for one in differences(gateway, kafka)} == {"topic"}

    wait_s = WAIT_S + scale.records / 300
    with Mirror(directory, "to-dragoman.properties", kafka, gateway) as running:
        until_mirrored(running, gateway, kafka, wait_s, AT_THE_END)
        # What is changed and written while it runs.
        altered = ("topics", "alter", topics[1], "--set", "segment.ms=99000000", "-b", kafka.bootstrap)
        assert dragoman(*altered).returncode == 0
        produce(kafka, topics, 100, first=scale.records)
        until_mirrored(running, gateway, kafka, wait_s)
        running.wait_until(lambda: len(rows_of(gateway, PAYMENTS)[0]) == 10, wait_s)
    # A mirror moves no group past what it has read, and leaves out those that are further back than itself.
    for found in [one for one in differences(gateway, kafka) if one["topic"] != PAYMENTS]:
        assert found["detail"].endswith("here") and "has no offset of" in found["detail"]
    for group in groups:
        set_to_lag_of(gateway, kafka, group)
        assert lags(gateway, group) == lags(kafka, group)
    # Control records and what was aborted have offsets at the source alone.
    (gaps,) = differences(gateway, kafka, "--records")
    assert (gaps["kind"], gaps["topic"]) == ("offsets", PAYMENTS)
    assert [row[3] for row in rows_of(gateway, PAYMENTS)[0]] == [
        b"%d" % n for n in (*range(5), *range(20, 25))
    ]
    for topic in topics:
        assert same_records(rows_of(gateway, topic), rows_of(kafka, topic)), topic

    return topics, groups


def canary_came(gateway: Endpoint, kafka: Endpoint) -> bool:
    """Write one more record, and see whether any has come."""
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    producer.produce(CANARY, b"sings")
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "canary"})
    try:
        if CANARY not in reader.list_topics(timeout=CLIENT_TIMEOUT_S).topics:
            return False
        return any(part for rows in rows_of(kafka, CANARY).values() for part in rows)
    finally:
        reader.close()
