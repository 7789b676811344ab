"""ShareFetch, API key 78: versions 1 to 2, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AcknowledgementBatch:
    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: list[int] = field(default_factory=list)


@dataclass(slots=True)
class FetchPartition:
    partition_index: int = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)


@dataclass(slots=True)
class FetchTopic:
    topic_id: bytes = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)


@dataclass(slots=True)
class ForgottenTopic:
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ShareFetchRequest:
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = 0
    leader_epoch: int = 0


@dataclass(slots=True)
class AcquiredRecords:
    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    records: bytes | memoryview | None = None
    acquired_records: list[AcquiredRecords] = field(default_factory=list)


@dataclass(slots=True)
class ShareFetchableTopicResponse:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


@dataclass(slots=True)
class ShareFetchResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)


REQUEST = Schema(
    ShareFetchRequest,
    (1, 2),
    0,
    {
        AcknowledgementBatch: (
            Field("first_offset", "int64", (1, 2)),
            Field("last_offset", "int64", (1, 2)),
            Field("acknowledge_types", "int8", (1, 2), array=True),
        ),
        FetchPartition: (
            Field("partition_index", "int32", (1, 2)),
            Field("acknowledgement_batches", AcknowledgementBatch, (1, 2), array=True),
        ),
        FetchTopic: (
            Field("topic_id", "uuid", (1, 2)),
            Field("partitions", FetchPartition, (1, 2), array=True),
        ),
        ForgottenTopic: (
            Field("topic_id", "uuid", (1, 2)),
            Field("partitions", "int32", (1, 2), array=True),
        ),
        ShareFetchRequest: (
            Field("group_id", "string", (1, 2), nullable=(1, 2), default=None),
            Field("member_id", "string", (1, 2), nullable=(1, 2)),
            Field("share_session_epoch", "int32", (1, 2)),
            Field("max_wait_ms", "int32", (1, 2)),
            Field("min_bytes", "int32", (1, 2)),
            Field("max_bytes", "int32", (1, 2), default=2147483647),
            Field("max_records", "int32", (1, 2)),
            Field("batch_size", "int32", (1, 2)),
            Field("share_acquire_mode", "int8", (2, 2)),
            Field("is_renew_ack", "bool", (2, 2)),
            Field("topics", FetchTopic, (1, 2), array=True),
            Field("forgotten_topics_data", ForgottenTopic, (1, 2), array=True),
        ),
    },
)


RESPONSE = Schema(
    ShareFetchResponse,
    (1, 2),
    0,
    {
        LeaderIdAndEpoch: (
            Field("leader_id", "int32", (1, 2)),
            Field("leader_epoch", "int32", (1, 2)),
        ),
        AcquiredRecords: (
            Field("first_offset", "int64", (1, 2)),
            Field("last_offset", "int64", (1, 2)),
            Field("delivery_count", "int16", (1, 2)),
        ),
        PartitionData: (
            Field("partition_index", "int32", (1, 2)),
            Field("error_code", "int16", (1, 2)),
            Field("error_message", "string", (1, 2), nullable=(1, 2), default=None),
            Field("acknowledge_error_code", "int16", (1, 2)),
            Field("acknowledge_error_message", "string", (1, 2), nullable=(1, 2), default=None),
            Field("current_leader", LeaderIdAndEpoch, (1, 2)),
            Field("records", "records", (1, 2)),
            Field("acquired_records", AcquiredRecords, (1, 2), array=True),
        ),
        ShareFetchableTopicResponse: (
            Field("topic_id", "uuid", (1, 2)),
            Field("partitions", PartitionData, (1, 2), array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", (1, 2)),
            Field("host", "string", (1, 2)),
            Field("port", "int32", (1, 2)),
            Field("rack", "string", (1, 2), nullable=(1, 2), default=None),
        ),
        ShareFetchResponse: (
            Field("throttle_time_ms", "int32", (1, 2)),
            Field("error_code", "int16", (1, 2)),
            Field("error_message", "string", (1, 2), nullable=(1, 2), default=None),
            Field("acquisition_lock_timeout_ms", "int32", (1, 2)),
            Field("responses", ShareFetchableTopicResponse, (1, 2), array=True),
            Field("node_endpoints", NodeEndpoint, (1, 2), array=True),
        ),
    },
)
