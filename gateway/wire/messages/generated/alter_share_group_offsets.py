"""AlterShareGroupOffsets, API key 91: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = 0
    start_offset: int = 0


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(default_factory=list)


@dataclass(slots=True)
class AlterShareGroupOffsetsRequest:
    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(default_factory=list)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(default_factory=list)


REQUEST = Schema(
    AlterShareGroupOffsetsRequest,
    (0, 0),
    0,
    {
        AlterShareGroupOffsetsRequestPartition: (
            Field("partition_index", "int32", (0, 0)),
            Field("start_offset", "int64", (0, 0)),
        ),
        AlterShareGroupOffsetsRequestTopic: (
            Field("topic_name", "string", (0, 0)),
            Field("partitions", AlterShareGroupOffsetsRequestPartition, (0, 0), array=True),
        ),
        AlterShareGroupOffsetsRequest: (
            Field("group_id", "string", (0, 0)),
            Field("topics", AlterShareGroupOffsetsRequestTopic, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    AlterShareGroupOffsetsResponse,
    (0, 0),
    0,
    {
        AlterShareGroupOffsetsResponsePartition: (
            Field("partition_index", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
        ),
        AlterShareGroupOffsetsResponseTopic: (
            Field("topic_name", "string", (0, 0)),
            Field("topic_id", "uuid", (0, 0)),
            Field("partitions", AlterShareGroupOffsetsResponsePartition, (0, 0), array=True),
        ),
        AlterShareGroupOffsetsResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
            Field("responses", AlterShareGroupOffsetsResponseTopic, (0, 0), array=True),
        ),
    },
)
