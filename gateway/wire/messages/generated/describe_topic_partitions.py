"""DescribeTopicPartitions, API key 75: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class TopicRequest:
    name: str = ""


@dataclass(slots=True)
class DescribeTopicPartitionsRequestCursor:
    topic_name: str = ""
    partition_index: int = 0


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648


@dataclass(slots=True)
class DescribeTopicPartitionsResponseCursor:
    topic_name: str = ""
    partition_index: int = 0


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None


REQUEST = Schema(
    DescribeTopicPartitionsRequest,
    (0, 0),
    0,
    {
        TopicRequest: (
            Field("name", "string", (0, 0)),
        ),
        DescribeTopicPartitionsRequestCursor: (
            Field("topic_name", "string", (0, 0)),
            Field("partition_index", "int32", (0, 0)),
        ),
        DescribeTopicPartitionsRequest: (
            Field("topics", TopicRequest, (0, 0), array=True),
            Field("response_partition_limit", "int32", (0, 0), default=2000),
            Field("cursor", DescribeTopicPartitionsRequestCursor, (0, 0), nullable=(0, 0), default=None),
        ),
    },
)


RESPONSE = Schema(
    DescribeTopicPartitionsResponse,
    (0, 0),
    0,
    {
        DescribeTopicPartitionsResponsePartition: (
            Field("error_code", "int16", (0, 0)),
            Field("partition_index", "int32", (0, 0)),
            Field("leader_id", "int32", (0, 0)),
            Field("leader_epoch", "int32", (0, 0), default=-1),
            Field("replica_nodes", "int32", (0, 0), array=True),
            Field("isr_nodes", "int32", (0, 0), array=True),
            Field("eligible_leader_replicas", "int32", (0, 0), array=True, nullable=(0, 0), default=None),
            Field("last_known_elr", "int32", (0, 0), array=True, nullable=(0, 0), default=None),
            Field("offline_replicas", "int32", (0, 0), array=True),
        ),
        DescribeTopicPartitionsResponseTopic: (
            Field("error_code", "int16", (0, 0)),
            Field("name", "string", (0, 0), nullable=(0, 0)),
            Field("topic_id", "uuid", (0, 0)),
            Field("is_internal", "bool", (0, 0)),
            Field("partitions", DescribeTopicPartitionsResponsePartition, (0, 0), array=True),
            Field("topic_authorized_operations", "int32", (0, 0), default=-2147483648),
        ),
        DescribeTopicPartitionsResponseCursor: (
            Field("topic_name", "string", (0, 0)),
            Field("partition_index", "int32", (0, 0)),
        ),
        DescribeTopicPartitionsResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("topics", DescribeTopicPartitionsResponseTopic, (0, 0), array=True),
            Field("next_cursor", DescribeTopicPartitionsResponseCursor, (0, 0), nullable=(0, 0), default=None),
        ),
    },
)
