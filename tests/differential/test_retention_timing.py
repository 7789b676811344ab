"""What time retention deletes: the same partitions at Apache Kafka and at the gateway, seconds later."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from gateway.wire.apis import ApiKey
from tests.differential.batches import HOUR_MS, Batch
from tests.differential.conversation import Conversation, Endpoint
from tests.differential.exchange import Call
from tests.differential.scenarios.builders import EARLIEST, LATEST, list_offsets
from tests.differential.steps import Create, Send, response_of, wait_until
from tests.support.gateway import Gateway, running_gateway
from tests.support.kafka import running_kafka, why_missing

pytestmark = pytest.mark.serial

CONFIGS: Final[Mapping[str, str]] = {"log.retention.check.interval.ms": "500"}
KAFKA_CONFIGS: Final[Mapping[str, str]] = {**CONFIGS, "log.initial.task.delay.ms": "500"}
RETENTION_MS: Final = 2_000
KEPT_S: Final = 6.0

NONE_MS: Final = -1
WITHOUT: Final = Batch(2, step_ms=0, timestamp_ms=NONE_MS)
HOUR_OLD: Final = Batch(2)
AHEAD: Final = Batch(2, later_ms=HOUR_MS + HOUR_MS // 2)

PARTITIONS: Final[Mapping[str, tuple[tuple[Batch, ...], tuple[int, int]]]] = {
    "without": ((WITHOUT,), (2, 2)),
    "without_old": ((WITHOUT, HOUR_OLD), (4, 4)),
    "old_without": ((HOUR_OLD, WITHOUT), (4, 4)),
    "old": ((HOUR_OLD,), (2, 2)),
    "ahead": ((AHEAD,), (0, 2)),
}
"""By topic: what is written, and which offsets are there afterwards (log start, high watermark)."""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoint, Gateway]]:
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    options = [part for name, value in CONFIGS.items() for part in ("--set", f"broker.{name}={value}")]
    with running_kafka(KAFKA_CONFIGS) as kafka:
        with running_gateway(tmp_path_factory.mktemp("retention"), options) as gateway:
            yield kafka, gateway


def offsets(conversation: Conversation, topic: str) -> tuple[int, int]:
    responses = [
        response_of(conversation, Call(ApiKey.LIST_OFFSETS, 4, list_offsets(which, topic=topic)))
        for which in (EARLIEST, LATEST)
    ]
    first, last = (response.topics[0].partitions[0].offset for response in responses)
    return first, last


def retained(endpoint: Endpoint) -> dict[str, tuple[int, int]]:
    conversation = Conversation(endpoint, "retention", int(time.time() * 1000))
    for topic, (batches, _) in PARTITIONS.items():
        Create(topic, configs={"retention.ms": str(RETENTION_MS)}).run(conversation)
        Send(batches, topic).run(conversation)
    begun = time.monotonic()
    wait_until(
        lambda: (
            time.monotonic() - begun > KEPT_S
            and all(offsets(conversation, topic) == there for topic, (_, there) in PARTITIONS.items())
        )
    )
    return {topic: offsets(conversation, topic) for topic in PARTITIONS}


def test_records_without_a_timestamp_are_deleted_as_kafka_deletes_them(
    endpoints: tuple[Endpoint, Gateway],
) -> None:
    with ThreadPoolExecutor(2) as pool:
        kafka, gateway = pool.map(retained, endpoints)
    assert kafka == gateway == {topic: there for topic, (_, there) in PARTITIONS.items()}
