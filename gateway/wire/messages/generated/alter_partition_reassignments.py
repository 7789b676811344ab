"""AlterPartitionReassignments, API key 45: versions 0 to 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ReassignablePartition:
    partition_index: int = 0
    replicas: list[int] | None = None


@dataclass(slots=True)
class ReassignableTopic:
    name: str = ""
    partitions: list[ReassignablePartition] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[ReassignableTopic] = field(default_factory=list)


@dataclass(slots=True)
class ReassignablePartitionResponse:
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""


@dataclass(slots=True)
class ReassignableTopicResponse:
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = field(default_factory=list)


REQUEST = Schema(
    AlterPartitionReassignmentsRequest,
    (0, 1),
    0,
    {
        ReassignablePartition: (
            Field("partition_index", "int32", (0, 1)),
            Field("replicas", "int32", (0, 1), array=True, nullable=(0, 1), default=None),
        ),
        ReassignableTopic: (
            Field("name", "string", (0, 1)),
            Field("partitions", ReassignablePartition, (0, 1), array=True),
        ),
        AlterPartitionReassignmentsRequest: (
            Field("timeout_ms", "int32", (0, 1), default=60000),
            Field("allow_replication_factor_change", "bool", (1, 1), default=True),
            Field("topics", ReassignableTopic, (0, 1), array=True),
        ),
    },
)


RESPONSE = Schema(
    AlterPartitionReassignmentsResponse,
    (0, 1),
    0,
    {
        ReassignablePartitionResponse: (
            Field("partition_index", "int32", (0, 1)),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
        ),
        ReassignableTopicResponse: (
            Field("name", "string", (0, 1)),
            Field("partitions", ReassignablePartitionResponse, (0, 1), array=True),
        ),
        AlterPartitionReassignmentsResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("allow_replication_factor_change", "bool", (1, 1), default=True),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
            Field("responses", ReassignableTopicResponse, (0, 1), array=True),
        ),
    },
)
