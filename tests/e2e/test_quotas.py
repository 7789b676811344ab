"""Real clients are held to their quotas, by default and by name."""

import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.gateway import Gateway, running_gateway

pytestmark = pytest.mark.serial

MB: Final = 1_000_000
WINDOWS: Final = 3
WARM_UP_S: Final = 3.0
"""A client may use up at once what it did not use in the windows before."""
MEASURED_S: Final = 6.0
NEAR: Final = 0.25
RECORD_BYTES: Final = 10_000
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"

Entity = Mapping[str, str | None]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    options = ["--set", f"quotas.quota.window.num={WINDOWS}"]
    with running_gateway(tmp_path_factory.mktemp("quotas"), options) as running:
        yield running


@pytest.fixture
def topic(gateway: Gateway) -> str:
    name = f"quotas-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(CLIENT_TIMEOUT_S)
    return name


@pytest.fixture(autouse=True)
def no_quotas(gateway: Gateway) -> Iterator[None]:
    yield
    for entity in ({"client-id": None}, {"client-id": "own"}, {"user": "ANONYMOUS"}, {"user": None}):
        limit(gateway, entity, None, None)


def limit(gateway: Gateway, entity: Entity, produce: float | None, fetch: float | None) -> None:
    parts = [AlterClientQuotasRequestEntityData(kind, name) for kind, name in entity.items()]
    ops = [OpData(key, value or 0.0, value is None) for key, value in ((PRODUCE, produce), (FETCH, fetch))]
    request = AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(parts, ops)])
    with Client(Address(gateway.host, gateway.port), timeout=CLIENT_TIMEOUT_S) as client:
        (entry,) = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries
    assert entry.error_code == 0, entry


class Meter:
    """Bytes by time, of which the warm-up is left out."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.counted = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self.began > WARM_UP_S + MEASURED_S

    def count(self, size: int) -> None:
        if WARM_UP_S <= time.monotonic() - self.began <= WARM_UP_S + MEASURED_S:
            self.counted += size

    @property
    def rate(self) -> float:
        return self.counted / MEASURED_S


def produce_for_a_while(gateway: Gateway, topic: str, client_id: str) -> float:
    """Bytes a second that librdkafka had acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "client.id": client_id,
            "batch.size": 50_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 40,
        }
    )
    meter = Meter()
    value = bytes(RECORD_BYTES)

    def count(error: KafkaError | None, _: object) -> None:
        if error is None:
            meter.count(RECORD_BYTES)

    while not meter.is_over:
        try:
            producer.produce(topic, value, on_delivery=count)
        except BufferError:
            producer.poll(0.02)
        producer.poll(0)
    producer.purge()
    producer.flush(CLIENT_TIMEOUT_S)
    return meter.rate


def produce_at_once(gateway: Gateway, topic: str, *client_ids: str) -> dict[str, float]:
    with ThreadPoolExecutor(len(client_ids)) as pool:
        rates = pool.map(partial(produce_for_a_while, gateway, topic), client_ids)
        return dict(zip(client_ids, rates, strict=True))


def consume_for_a_while(gateway: Gateway, topic: str, client_id: str) -> float:
    """Bytes a second that librdkafka read, over and over from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "client.id": client_id,
            "group.id": "unused",
            "fetch.message.max.bytes": 200_000,
            "queued.max.messages.kbytes": 200,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    meter = Meter()
    while not meter.is_over:
        for message in consumer.consume(100, timeout=0.05):
            assert message.error() is None
            meter.count(len(message.value() or b""))
    consumer.close()
    return meter.rate


def fill(gateway: Gateway, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "batch.size": 100_000})
    for _ in range(size // RECORD_BYTES):
        producer.produce(topic, bytes(RECORD_BYTES))
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def test_a_producer_sends_what_its_quota_allows_and_no_more(gateway: Gateway, topic: str) -> None:
    limit(gateway, {"client-id": None}, MB, None)
    assert produce_for_a_while(gateway, topic, "any") == pytest.approx(MB, rel=NEAR)


def test_a_consumer_reads_what_its_quota_allows_and_no_more(gateway: Gateway, topic: str) -> None:
    fill(gateway, topic, 20 * MB)
    limit(gateway, {"client-id": None}, None, MB)
    assert consume_for_a_while(gateway, topic, "any") == pytest.approx(MB, rel=NEAR)


def test_a_quota_by_name_counts_before_the_default_and_affects_no_other_client(
    gateway: Gateway, topic: str
) -> None:
    limit(gateway, {"client-id": None}, MB, None)
    limit(gateway, {"client-id": "own"}, MB / 4, None)
    rates = produce_at_once(gateway, topic, "own", "any", "other")
    assert rates["own"] == pytest.approx(MB / 4, rel=NEAR)
    # Not shared: each client id has the default for itself.
    assert rates["any"] == pytest.approx(MB, rel=NEAR)
    assert rates["other"] == pytest.approx(MB, rel=NEAR)


def test_connections_of_one_user_share_its_quota(gateway: Gateway, topic: str) -> None:
    limit(gateway, {"user": "ANONYMOUS"}, MB, None)
    rates = produce_at_once(gateway, topic, "one", "two")
    assert sum(rates.values()) == pytest.approx(MB, rel=NEAR)


def test_kafka_python_is_throttled_as_well(gateway: Gateway, topic: str) -> None:
    fill(gateway, topic, 10 * MB)
    limit(gateway, {"user": None}, MB, MB)
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap, batch_size=100_000, linger_ms=5)
    meter = Meter()
    while not meter.is_over:
        sent = [producer.send(topic, bytes(RECORD_BYTES)) for _ in range(10)]
        for future in sent:
            future.get(CLIENT_TIMEOUT_S)
            meter.count(RECORD_BYTES)
    producer.close(timeout=CLIENT_TIMEOUT_S)
    assert meter.rate == pytest.approx(MB, rel=NEAR)
    consumer = KafkaConsumer(bootstrap_servers=gateway.bootstrap, max_partition_fetch_bytes=200_000)
    consumer.assign([KafkaPythonPartition(topic, 0)])
    consumer.seek_to_beginning()
    meter = Meter()
    while not meter.is_over:
        for found in consumer.poll(50).values():
            meter.count(sum(len(record.value) for record in found))
    consumer.close()
    assert meter.rate == pytest.approx(MB, rel=NEAR)
