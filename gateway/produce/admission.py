"""Who gets in: each partition of a produce request is checked by itself, and a refusal sinks no neighbour."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.wire.messages.produce import FIRST_WITH_TOPIC_IDS, ProduceTopic
from ledger.batch.header import BatchError, CheckedBatch, check_batches
from ledger.topics import Topic, Topics
from ledger.types import TopicId

ZSTD_FROM_VERSION = 7
ACKS = (-1, 0, 1)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Kafka's error name and a readable reason."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the configs of a topic ask of a batch."""

    max_batch_bytes: int
    log_append_time: bool


def rules_of(configs: Mapping[str, str], default_max_batch_bytes: int) -> TopicRules:
    """The rules of a topic with these configs."""
    own_max = configs.get("max.message.bytes")
    return TopicRules(
        int(own_max) if own_max is not None else default_max_batch_bytes,
        configs.get("message.timestamp.type") == "LogAppendTime",
    )


def find_topic(topics: Topics, version: int, asked: ProduceTopic) -> Topic | None:
    if version >= FIRST_WITH_TOPIC_IDS:
        return topics.by_id.get(TopicId(asked.topic_id))
    return topics.by_name.get(asked.name)


def unknown_topic(version: int) -> Refusal:
    if version >= FIRST_WITH_TOPIC_IDS:
        return Refusal("UNKNOWN_TOPIC_ID", "this server does not host this topic id")
    return Refusal("UNKNOWN_TOPIC_OR_PARTITION", "this server does not host this topic-partition")


def check(records: memoryview | None, rules: TopicRules, version: int) -> CheckedBatch | Refusal:
    """The one batch that a partition may hold, or why it is refused."""
    try:
        batch = check_batches(records, rules.max_batch_bytes, zstd_allowed=version >= ZSTD_FROM_VERSION)
    except BatchError as error:
        return Refusal(error.refusal.value, error.reason)
    if batch.header.is_transactional:
        return Refusal("INVALID_TXN_STATE", "there is no transaction that this batch could belong to")
    return batch
