"""ListOffsets, API key 2: versions 1 to 11, flexible from 6.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0


@dataclass(slots=True)
class ListOffsetsTopic:
    name: str = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


@dataclass(slots=True)
class ListOffsetsRequest:
    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 0


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class ListOffsetsResponse:
    throttle_time_ms: int = 0
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)


REQUEST = Schema(
    ListOffsetsRequest,
    (1, 11),
    6,
    {
        ListOffsetsPartition: (
            Field("partition_index", "int32", (1, 11)),
            Field("current_leader_epoch", "int32", (4, 11), default=-1),
            Field("timestamp", "int64", (1, 11)),
        ),
        ListOffsetsTopic: (
            Field("name", "string", (1, 11)),
            Field("partitions", ListOffsetsPartition, (1, 11), array=True),
        ),
        ListOffsetsRequest: (
            Field("replica_id", "int32", (1, 11)),
            Field("isolation_level", "int8", (2, 11)),
            Field("topics", ListOffsetsTopic, (1, 11), array=True),
            Field("timeout_ms", "int32", (10, 11)),
        ),
    },
)


RESPONSE = Schema(
    ListOffsetsResponse,
    (1, 11),
    6,
    {
        ListOffsetsPartitionResponse: (
            Field("partition_index", "int32", (1, 11)),
            Field("error_code", "int16", (1, 11)),
            Field("timestamp", "int64", (1, 11), default=-1),
            Field("offset", "int64", (1, 11), default=-1),
            Field("leader_epoch", "int32", (4, 11), default=-1),
        ),
        ListOffsetsTopicResponse: (
            Field("name", "string", (1, 11)),
            Field("partitions", ListOffsetsPartitionResponse, (1, 11), array=True),
        ),
        ListOffsetsResponse: (
            Field("throttle_time_ms", "int32", (2, 11)),
            Field("topics", ListOffsetsTopicResponse, (1, 11), array=True),
        ),
    },
)
