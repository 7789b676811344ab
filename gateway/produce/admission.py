"""Who gets in: each partition of a produce request is checked by itself, and a refusal sinks no neighbour."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.produce.inspection import Inspection
from gateway.produce.refusals import MOST_TOLD, Refusal
from gateway.wire.messages.produce import FIRST_WITH_TOPIC_IDS, ProducePartition, ProduceTopic
from ledger.batch.header import (
    ATTRIBUTES_AT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchError,
    BatchHeader,
    CheckedBatch,
    Codec,
    TimestampType,
    check_batches,
    clear_log_append_time,
)
from ledger.topics import INTERNAL_TOPICS, Topic, Topics
from ledger.types import TopicId

ZSTD_FROM_VERSION = 7
ACKS = (-1, 0, 1)
ADMIN_CLIENT_ID: Final = "__admin_client"
MOST_KNOWN: Final = 10_000
_LOW_BYTE: Final = ATTRIBUTES_AT + 1
MIB: Final = 1024 * 1024
MAX_LONG: Final = 2**63 - 1
CODECS: Final[Mapping[str, Codec]] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the configs of a topic ask of a batch."""

    max_batch_bytes: int
    log_append_time: bool = False
    keys_required: bool = False
    before_max_ms: int | None = None
    after_max_ms: int | None = None
    """How far a timestamp may lie before and after now; None = as far as it likes."""
    codec: Codec | None = None
    max_decompressed_bytes: int = 64 * MIB

    def must_open(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch that comes now has to be looked into."""
        # To look for late records would open every batch; the header's word is taken that there is none.
        is_late = self.after_max_ms is not None and header.max_timestamp > now_ms + self.after_max_ms
        recoded = self.codec is not None and self.codec is not header.codec
        return is_late or recoded or self.keys_required or self.before_max_ms is not None

    def inspection(self, now_ms: int) -> Inspection:
        """What these rules want to see inside a batch that comes now."""
        return Inspection(
            self.keys_required,
            now_ms - self.before_max_ms if self.before_max_ms is not None else None,
            now_ms + self.after_max_ms if self.after_max_ms is not None else None,
            self.codec,
            self.max_decompressed_bytes,
            self.max_batch_bytes,
        )


def rules_of(value: Callable[[str], str], max_decompressed_bytes: int = 64 * MIB) -> TopicRules:
    """The rules of a topic; `value` tells each of its configs in force."""
    log_append_time = value("message.timestamp.type") == "LogAppendTime"
    compression = value("compression.type")
    return TopicRules(
        int(value("max.message.bytes")),
        log_append_time,
        "compact" in value("cleanup.policy").split(","),
        None if log_append_time else _bound(value("message.timestamp.before.max.ms")),
        None if log_append_time else _bound(value("message.timestamp.after.max.ms")),
        None if compression == "producer" else CODECS[compression],
        max_decompressed_bytes,
    )


class RuleBook:
    """The rules of each topic, worked out once until its configs change, or the defaults of all topics.

    `defaults` gives the same object as long as those stay.
    """

    def __init__(
        self,
        value: Callable[[str, Mapping[str, str]], str],
        max_decompressed_bytes: int,
        defaults: Callable[[], object],
    ) -> None:
        self._value = value
        self._max_decompressed_bytes = max_decompressed_bytes
        self._defaults = defaults
        self._known: dict[TopicId, tuple[Mapping[str, str], object, TopicRules]] = {}

    def of(self, topic: Topic) -> TopicRules:
        known = self._known.get(topic.topic_id)
        defaults = self._defaults()
        if known is not None and known[0] is topic.configs and known[1] is defaults:
            return known[2]
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        rules = rules_of(lambda name: self._value(name, topic.configs), self._max_decompressed_bytes)
        self._known[topic.topic_id] = (topic.configs, defaults, rules)
        return rules


def _bound(value: str) -> int | None:
    return int(value) if int(value) < MAX_LONG else None


def is_transactional(topics: Sequence[ProduceTopic]) -> bool:
    """Whether any batch says so; without a transactional id the whole request is then refused."""
    for topic in topics:
        for partition in topic.partitions:
            records = partition.records
            if records is not None and len(records) > _LOW_BYTE and records[_LOW_BYTE] & TRANSACTIONAL_BIT:
                return True
    return False


def merged(topics: list[ProduceTopic]) -> list[ProduceTopic]:
    """Each topic and partition once. Of one that is sent twice the last counts, as for Kafka."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return topics
    by_topic: dict[tuple[str, bytes], dict[int, ProducePartition]] = {}
    for topic in topics:
        partitions = by_topic.setdefault((topic.name, topic.topic_id), {})
        partitions.update((partition.index, partition) for partition in topic.partitions)
    return [ProduceTopic(*key, list(partitions.values())) for key, partitions in by_topic.items()]


def find_topic(topics: Topics, version: int, asked: ProduceTopic) -> Topic | None:
    if version >= FIRST_WITH_TOPIC_IDS:
        return topics.by_id.get(TopicId(asked.topic_id))
    return topics.by_name.get(asked.name)


def unknown_topic(version: int) -> Refusal:
    if version >= FIRST_WITH_TOPIC_IDS:
        return Refusal("UNKNOWN_TOPIC_ID", "this server does not host this topic id")
    return Refusal("UNKNOWN_TOPIC_OR_PARTITION", "this server does not host this topic-partition")


def refused_as_internal(name: str, client_id: str | None) -> Refusal | None:
    """As in Kafka only one client may write into a topic whose name is internal; it is enough to say so."""
    if name in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
        return Refusal("INVALID_TOPIC_EXCEPTION", f"Cannot append to internal topic {name}")
    return None


def check(records: memoryview | None, rules: TopicRules, version: int) -> CheckedBatch | Refusal:
    """The one batch that a partition may hold, or why it is refused."""
    try:
        batch = check_batches(records, rules.max_batch_bytes, zstd_allowed=version >= ZSTD_FROM_VERSION)
    except BatchError as error:
        return Refusal(error.refusal.value, error.reason, in_log=error.in_log)
    if batch.header.is_transactional:
        return Refusal("INVALID_TXN_STATE", "there is no transaction that this batch could belong to")
    if batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return _client_stamped(batch, rules)
    return batch


def _client_stamped(batch: CheckedBatch, rules: TopicRules) -> CheckedBatch | Refusal:
    """A producer that stamps LogAppendTime is refused where the topic does so, and corrected elsewhere."""
    if rules.log_append_time:
        reason = "only the broker sets LogAppendTime"
        told = [(index, reason) for index in range(min(batch.header.record_count, MOST_TOLD))]
        return Refusal("INVALID_TIMESTAMP", reason, told, in_log=True)
    header = batch.header._replace(attributes=batch.header.attributes & ~LOG_APPEND_TIME_BIT)
    return CheckedBatch(header, memoryview(clear_log_append_time(batch.data)).toreadonly())
