"""Each topic config that has an effect, by its effect on what clients send and read."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.batches_on_the_wire import fetch_batch_headers
from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.conftest import Endpoint
from tests.e2e.sample_records import BASE_MS, expected, small_records
from tests.e2e.test_topic_apis import set_config
from tests.support.client import CLIENT_TIMEOUT_S, Codec, Earliest, Record
from tests.support.gateway import Gateway, running_gateway

LOG_APPEND_TIME = 2
"""As librdkafka numbers it."""
HOUR_MS = 3_600_000
CHECK_MS = 200
SETTLE_S = 20.0


@pytest.fixture(scope="module")
def retaining(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that looks often at what retention ends."""
    options = ["--set", f"broker.log.retention.check.interval.ms={CHECK_MS}"]
    with running_gateway(tmp_path_factory.mktemp("retaining"), options) as gateway:
        yield gateway


def create(endpoint: Endpoint, topic: str, **configs: str) -> ConfluentClient:
    """A topic of one partition; in config names `_` means the dot."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=given)])[topic].result(CLIENT_TIMEOUT_S)
    return ConfluentClient(endpoint.bootstrap)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def refusal(endpoint: Endpoint, topic: str, record: Record) -> int | None:
    """The error code of producing one record, None when it is taken."""
    producer = Producer(
        {"bootstrap.servers": endpoint.bootstrap, "acks": "all", "message.timeout.ms": 20_000}
    )
    outcome: list[KafkaError | None] = []
    producer.produce(
        topic,
        record.value,
        record.key,
        timestamp=record.timestamp_ms,
        on_delivery=lambda error, _: outcome.append(error),
    )
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    (error,) = outcome
    return None if error is None else int(error.code())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing changed in time"
        time.sleep(0.05)


def log_start(client: ConfluentClient, topic: str) -> int:
    """Without a fetch, which may come when the log start has just passed its offset."""
    return client.start_offset(topic, 0)


def test_retention_ms_ends_what_is_too_old_and_keeps_the_rest(retaining: Gateway, topic: str) -> None:
    client = create(retaining, topic)
    create(retaining, f"{topic}-other")
    old, fresh = Record(0, BASE_MS, b"k", b"old"), Record(0, now_ms(), b"k", b"fresh")
    for record, number in ((old, 0), (old, 1)):
        assert client.produce(topic, [record], Codec.NONE, idempotent=False) == [number]
    # Adjacent batches in the store are kept or deleted as one: other batches must be in between.
    client.produce(f"{topic}-other", [fresh], Codec.NONE, idempotent=False)
    assert client.produce(topic, [fresh], Codec.NONE, idempotent=False) == [2]
    time.sleep(4 * CHECK_MS / 1000)
    assert log_start(client, topic) == 0
    admin = AdminClient({"bootstrap.servers": retaining.bootstrap})
    set_config(admin, topic, "retention.ms", "600000")
    wait_for(lambda: log_start(client, topic) == 2)
    assert client.consume(topic, [0], Earliest(), 1) == expected([fresh], [2])
    assert client.end_offset(topic, 0) == 3
    assert log_start(client, f"{topic}-other") == 0


def test_retention_bytes_ends_the_oldest(retaining: Gateway, topic: str) -> None:
    client = create(retaining, topic, retention_bytes="25000")
    create(retaining, f"{topic}-other")
    for number in range(6):
        record = Record(0, now_ms(), b"k", bytes(10_000))
        assert client.produce(topic, [record], Codec.NONE, idempotent=False) == [number]
        client.produce(f"{topic}-other", [record], Codec.NONE, idempotent=False)
    # As in Kafka, something goes only if 25000 bytes are left without it.
    wait_for(lambda: log_start(client, topic) == 3)
    time.sleep(4 * CHECK_MS / 1000)
    assert log_start(client, topic) == 3
    assert client.end_offset(topic, 0) == 6
    assert log_start(client, f"{topic}-other") == 0


def test_what_is_only_compacted_knows_no_retention(retaining: Gateway, topic: str) -> None:
    client = create(retaining, topic, retention_ms="1", retention_bytes="1", cleanup_policy="compact")
    client.produce(topic, [Record(0, BASE_MS, b"k", b"v")], Codec.NONE, idempotent=False)
    time.sleep(4 * CHECK_MS / 1000)
    assert log_start(client, topic) == 0


def test_max_message_bytes_bounds_a_batch_and_may_be_changed(endpoint: Endpoint, topic: str) -> None:
    create(endpoint, topic, max_message_bytes="2000")
    small, large = Record(0, now_ms(), None, bytes(1000)), Record(0, now_ms(), None, bytes(3000))
    assert refusal(endpoint, topic, small) is None
    assert refusal(endpoint, topic, large) == KafkaError.MSG_SIZE_TOO_LARGE
    set_config(AdminClient({"bootstrap.servers": endpoint.bootstrap}), topic, "max.message.bytes", "4000")
    assert refusal(endpoint, topic, large) is None


def test_log_append_time_stamps_records_with_the_time_they_came(endpoint: Endpoint, topic: str) -> None:
    client = create(endpoint, topic, message_timestamp_type="LogAppendTime")
    before = now_ms()
    client.produce(topic, small_records(3), Codec.NONE, idempotent=False)
    received = client.consume(topic, [0], Earliest(), 3)
    assert {one.timestamp_type for one in received} == {LOG_APPEND_TIME}
    assert all(before <= one.record.timestamp_ms <= now_ms() for one in received)


@pytest.mark.parametrize(
    ("name", "too_far_ms", "fine_ms"),
    [
        ("message.timestamp.before.max.ms", -3 * HOUR_MS, -HOUR_MS),
        ("message.timestamp.after.max.ms", 3 * HOUR_MS, HOUR_MS),
    ],
)
def test_records_from_too_far_away_in_time_are_refused(
    endpoint: Endpoint, topic: str, name: str, too_far_ms: int, fine_ms: int
) -> None:
    create(endpoint, topic, **{name: str(2 * HOUR_MS)})
    assert refusal(endpoint, topic, Record(0, now_ms() + fine_ms, b"k", b"v")) is None
    away = Record(0, now_ms() + too_far_ms, b"k", b"v")
    assert refusal(endpoint, topic, away) == KafkaError.INVALID_TIMESTAMP


@pytest.mark.parametrize("sent", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("kept", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_is_the_codec_that_records_are_kept_in(
    endpoint: Endpoint, topic: str, sent: Codec, kept: str
) -> None:
    client = create(endpoint, topic, compression_type=kept)
    records = small_records(200)
    client.produce(topic, records, sent, idempotent=True)
    codec = {"producer": sent, "uncompressed": Codec.NONE}.get(kept) or Codec(kept)
    batches = fetch_batch_headers(endpoint.host, endpoint.port, topic)
    assert {batch.codec for batch in batches} == {codec.number}
    assert client.consume(topic, [0], Earliest(), 200) == expected(records, range(200))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topics_take_no_record_without_a_key(endpoint: Endpoint, topic: str, policy: str) -> None:
    client = create(endpoint, topic, cleanup_policy=policy)
    assert refusal(endpoint, topic, Record(0, now_ms(), None, b"v")) == KafkaError.INVALID_RECORD
    assert refusal(endpoint, topic, Record(0, now_ms(), b"", b"v")) is None
    assert client.end_offset(topic, 0) == 1
