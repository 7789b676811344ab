"""Validation of batches: each partition of a produce request by itself, so that a refusal of one leaves the
others alone.

What has to be looked up inside a batch is in `gateway/produce/record_validation.py`.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.produce.record_validation import RecordValidation
from gateway.produce.refusals import MAX_SHOWN, Refusal
from gateway.wire.messages.produce import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from gateway.wire.primitives import run_out
from ledger.batch.header import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    BatchError,
    BatchHeader,
    CheckedBatch,
    Codec,
    check_batches,
    clear_log_append_time,
)
from ledger.errors import ErrorName
from ledger.partitions.requests import ProducerTransaction
from ledger.topics.state import INTERNAL_TOPICS, Topic, Topics
from ledger.types import TopicId

FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12
ACKS = (-1, 0, 1)
ADMIN_CLIENT_ID: Final = "__admin_client"
MAX_KNOWN: Final = 10_000
_LOW_BYTE: Final = ATTRIBUTES_AT + 1
_SIGN: Final = 0x80
"""Of the first byte of a negative producer id: there is none."""
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
class TopicPolicy:
    """What the configs of a topic require of a batch."""

    max_batch_bytes: int
    log_append_time: bool = False
    keys_required: bool = False
    before_max_ms: int | None = None
    after_max_ms: int | None = None
    """How far a timestamp may be before and after now; None is without bound."""
    codec: Codec | None = None
    max_decompressed_bytes: int = 64 * MIB

    def needs_decompression(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch that arrives now must be decompressed and its records be validated."""
        # To look for late records would decompress every batch: the header says whether there is one.
        is_late = self.after_max_ms is not None and header.max_timestamp > now_ms + self.after_max_ms
        recoded = self.codec is not None and self.codec is not header.codec
        return is_late or recoded or self.keys_required or self.before_max_ms is not None

    def record_validation(self, now_ms: int) -> RecordValidation:
        """What to validate of the records of a batch that arrives now."""
        return RecordValidation(
            self.keys_required,
            now_ms - self.before_max_ms if self.before_max_ms is not None else None,
            now_ms + self.after_max_ms if self.after_max_ms is not None else None,
            self.codec,
            self.max_decompressed_bytes,
            self.max_batch_bytes,
        )


def policy_of(value: Callable[[str], str], max_decompressed_bytes: int = 64 * MIB) -> TopicPolicy:
    """The policy of a topic; `value` is given the name of a config and returns its value in force."""
    log_append_time = value("message.timestamp.type") == "LogAppendTime"
    compression = value("compression.type")
    return TopicPolicy(
        int(value("max.message.bytes")),
        log_append_time,
        "compact" in value("cleanup.policy").split(","),
        None if log_append_time else _bound(value("message.timestamp.before.max.ms")),
        None if log_append_time else _bound(value("message.timestamp.after.max.ms")),
        None if compression == "producer" else CODECS[compression],
        max_decompressed_bytes,
    )


class TopicPolicies:
    """The policy of each topic, computed again when its configs change, or the defaults of all topics.

    `defaults` returns the same object until the defaults change.
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
        self._known: dict[TopicId, tuple[Mapping[str, str], object, TopicPolicy]] = {}

    def of(self, topic: Topic) -> TopicPolicy:
        known = self._known.get(topic.topic_id)
        defaults = self._defaults()
        if known is not None and known[0] is topic.configs and known[1] is defaults:
            return known[2]
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        policy = policy_of(lambda name: self._value(name, topic.configs), self._max_decompressed_bytes)
        self._known[topic.topic_id] = (topic.configs, defaults, policy)
        return policy


def _bound(value: str) -> int | None:
    return int(value) if int(value) < MAX_LONG else None


def refuse_all(request: ProduceRequest) -> Refusal | None:
    """Why no batch of the request is taken."""
    if request.transactional_id is None and is_transactional(request.topics):
        reason = "a transactional batch without a transactional id"
        return Refusal(ErrorName.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)
    if request.transactional_id is not None and has_several_producers(request.topics):
        reason = "transactional batches of more than one producer"
        return Refusal(ErrorName.INVALID_PRODUCER_ID_MAPPING, reason)
    if request.acks not in ACKS:
        return Refusal(ErrorName.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
    return None


def transaction_of(request: ProduceRequest, version: int) -> ProducerTransaction | None:
    """What the request says of the transaction of its batches; None without a transactional id."""
    if request.transactional_id is None:
        return None
    return ProducerTransaction(
        request.transactional_id,
        adds=version >= FIRST_VERSION_THAT_ADDS,
        is_abortable=version >= FIRST_VERSION_WITH_ABORTABLE,
    )


def is_transactional(topics: Sequence[ProduceTopic]) -> bool:
    """Whether any batch is marked as transactional; without a transactional id the request is then
    refused."""
    for topic in topics:
        for partition in topic.partitions:
            records = partition.records
            if records is not None and len(records) > _LOW_BYTE and records[_LOW_BYTE] & TRANSACTIONAL_BIT:
                return True
    return False


def has_several_producers(topics: Sequence[ProduceTopic]) -> bool:
    """Whether transactional batches of one request have different producer ids or epochs."""
    found = b""
    for topic in topics:
        for partition in topic.partitions:
            records = partition.records
            if records is None or len(records) < HEADER_BYTES or not records[_LOW_BYTE] & TRANSACTIONAL_BIT:
                continue
            producer = bytes(records[PRODUCER_ID_AT:BASE_SEQUENCE_AT])
            if found and producer != found and producer[0] < _SIGN:
                return True
            found = producer if producer[0] < _SIGN else found
    return False


def merged(topics: list[ProduceTopic]) -> list[ProduceTopic]:
    """Each topic and partition once. As in Kafka, the last counts of one that is sent twice."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return topics
    return run_out(merging(topics))


def merging(topics: list[ProduceTopic]) -> Generator[int, None, list[ProduceTopic]]:
    """As `merged`, in slices: yields the units of weight that are done."""
    by_topic: dict[tuple[str, bytes], dict[int, ProducePartition]] = {}
    for topic in topics:
        partitions = by_topic.setdefault((topic.name, topic.topic_id), {})
        partitions.update({partition.index: partition for partition in topic.partitions})
        yield 1 + (len(topic.partitions) >> 4)
    once = list[ProduceTopic]()
    for key, found in by_topic.items():
        once.append(ProduceTopic(*key, list(found.values())))
        yield 1
    return once


def find_topic(topics: Topics, version: int, requested: ProduceTopic) -> Topic | None:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return topics.by_id.get(TopicId(requested.topic_id))
    return topics.by_name.get(requested.name)


def unknown_topic(version: int) -> Refusal:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return Refusal(ErrorName.UNKNOWN_TOPIC_ID, "this server does not host this topic id")
    return Refusal(ErrorName.UNKNOWN_TOPIC_OR_PARTITION, "this server does not host this topic-partition")


def refused_as_internal(name: str, client_id: str | None) -> Refusal | None:
    """As in Kafka, only the client with the admin client's id may write into a topic whose name is
    internal."""
    if name in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
        return Refusal(ErrorName.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
    return None


def check(records: memoryview | None, policy: TopicPolicy, version: int) -> CheckedBatch | Refusal:
    """The one batch that a partition of a request may have, or why it is refused."""
    try:
        batch = check_batches(
            records, policy.max_batch_bytes, zstd_allowed=version >= FIRST_VERSION_WITH_ZSTD
        )
    except BatchError as error:
        return Refusal(error.refusal, error.reason, in_log=error.in_log)
    if batch.header.attributes & LOG_APPEND_TIME_BIT:
        return _with_log_append_time(batch, policy)
    return batch


def _with_log_append_time(batch: CheckedBatch, policy: TopicPolicy) -> CheckedBatch | Refusal:
    """A batch that its producer has marked as LogAppendTime: refused if the topic has LogAppendTime too,
    corrected otherwise."""
    if policy.log_append_time:
        reason = "only the broker sets LogAppendTime"
        records = [(index, reason) for index in range(min(batch.header.record_count, MAX_SHOWN))]
        return Refusal(ErrorName.INVALID_TIMESTAMP, reason, records, in_log=True)
    header = batch.header._replace(attributes=batch.header.attributes & ~LOG_APPEND_TIME_BIT)
    return CheckedBatch(header, memoryview(clear_log_append_time(batch.data)).toreadonly())
