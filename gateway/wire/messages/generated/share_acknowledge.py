"""ShareAcknowledge, API key 79: versions 1 to 2, flexible from 0.

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
class AcknowledgePartition:
    partition_index: int = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)


@dataclass(slots=True)
class AcknowledgeTopic:
    topic_id: bytes = ZERO_UUID
    partitions: list[AcknowledgePartition] = field(default_factory=list)


@dataclass(slots=True)
class ShareAcknowledgeRequest:
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    is_renew_ack: bool = False
    topics: list[AcknowledgeTopic] = field(default_factory=list)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = 0
    leader_epoch: int = 0


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)


@dataclass(slots=True)
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


@dataclass(slots=True)
class ShareAcknowledgeResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)


REQUEST = Schema(
    ShareAcknowledgeRequest,
    (1, 2),
    0,
    {
        AcknowledgementBatch: (
            Field("first_offset", "int64", (1, 2)),
            Field("last_offset", "int64", (1, 2)),
            Field("acknowledge_types", "int8", (1, 2), array=True),
        ),
        AcknowledgePartition: (
            Field("partition_index", "int32", (1, 2)),
            Field("acknowledgement_batches", AcknowledgementBatch, (1, 2), array=True),
        ),
        AcknowledgeTopic: (
            Field("topic_id", "uuid", (1, 2)),
            Field("partitions", AcknowledgePartition, (1, 2), array=True),
        ),
        ShareAcknowledgeRequest: (
            Field("group_id", "string", (1, 2), nullable=(1, 2), default=None),
            Field("member_id", "string", (1, 2), nullable=(1, 2)),
            Field("share_session_epoch", "int32", (1, 2)),
            Field("is_renew_ack", "bool", (2, 2)),
            Field("topics", AcknowledgeTopic, (1, 2), array=True),
        ),
    },
)


RESPONSE = Schema(
    ShareAcknowledgeResponse,
    (1, 2),
    0,
    {
        LeaderIdAndEpoch: (
            Field("leader_id", "int32", (1, 2)),
            Field("leader_epoch", "int32", (1, 2)),
        ),
        PartitionData: (
            Field("partition_index", "int32", (1, 2)),
            Field("error_code", "int16", (1, 2)),
            Field("error_message", "string", (1, 2), nullable=(1, 2), default=None),
            Field("current_leader", LeaderIdAndEpoch, (1, 2)),
        ),
        ShareAcknowledgeTopicResponse: (
            Field("topic_id", "uuid", (1, 2)),
            Field("partitions", PartitionData, (1, 2), array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", (1, 2)),
            Field("host", "string", (1, 2)),
            Field("port", "int32", (1, 2)),
            Field("rack", "string", (1, 2), nullable=(1, 2), default=None),
        ),
        ShareAcknowledgeResponse: (
            Field("throttle_time_ms", "int32", (1, 2)),
            Field("error_code", "int16", (1, 2)),
            Field("error_message", "string", (1, 2), nullable=(1, 2), default=None),
            Field("acquisition_lock_timeout_ms", "int32", (2, 2)),
            Field("responses", ShareAcknowledgeTopicResponse, (1, 2), array=True),
            Field("node_endpoints", NodeEndpoint, (1, 2), array=True),
        ),
    },
)
