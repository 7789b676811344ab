"""DisklessListOffsets (KIP-1164), API key 97: exact offsets of partitions by topic id.

Timestamps: -1 latest, -2 earliest, -3 the greatest timestamp, -4 earliest local, -5 latest tiered.
"""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: int = 0
    timestamp: int = 0


@dataclass(slots=True)
class ListOffsetsTopic:
    topic_id: bytes = ZERO_UUID
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


@dataclass(slots=True)
class DisklessListOffsetsRequest:
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 60000


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    timestamp: int = -1
    offset: int = -1


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    topic_id: bytes = ZERO_UUID
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class DisklessListOffsetsResponse:
    throttle_time_ms: int = 0
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)


REQUEST = Schema(
    DisklessListOffsetsRequest,
    VERSIONS,
    0,
    {
        ListOffsetsPartition: (
            Field("partition_index", "int32", VERSIONS),
            Field("timestamp", "int64", VERSIONS),
        ),
        ListOffsetsTopic: (
            Field("topic_id", "uuid", VERSIONS),
            Field("partitions", ListOffsetsPartition, VERSIONS, array=True),
        ),
        DisklessListOffsetsRequest: (
            Field("topics", ListOffsetsTopic, VERSIONS, array=True),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    DisklessListOffsetsResponse,
    VERSIONS,
    0,
    {
        ListOffsetsPartitionResponse: (
            Field("partition_index", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("timestamp", "int64", VERSIONS, default=-1),
            Field("offset", "int64", VERSIONS, default=-1),
        ),
        ListOffsetsTopicResponse: (
            Field("topic_id", "uuid", VERSIONS),
            Field("partitions", ListOffsetsPartitionResponse, VERSIONS, array=True),
        ),
        DisklessListOffsetsResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("topics", ListOffsetsTopicResponse, VERSIONS, array=True),
        ),
    },
)
