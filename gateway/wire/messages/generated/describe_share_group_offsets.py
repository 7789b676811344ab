"""DescribeShareGroupOffsets, API key 90: versions 0 to 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default_factory=list)


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(default_factory=list)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = 0
    start_offset: int = 0
    leader_epoch: int = 0
    lag: int = -1
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(default_factory=list)
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)


REQUEST = Schema(
    DescribeShareGroupOffsetsRequest,
    (0, 1),
    0,
    {
        DescribeShareGroupOffsetsRequestTopic: (
            Field("topic_name", "string", (0, 1)),
            Field("partitions", "int32", (0, 1), array=True),
        ),
        DescribeShareGroupOffsetsRequestGroup: (
            Field("group_id", "string", (0, 1)),
            Field("topics", DescribeShareGroupOffsetsRequestTopic, (0, 1), array=True, nullable=(0, 1)),
        ),
        DescribeShareGroupOffsetsRequest: (
            Field("groups", DescribeShareGroupOffsetsRequestGroup, (0, 1), array=True),
        ),
    },
)


RESPONSE = Schema(
    DescribeShareGroupOffsetsResponse,
    (0, 1),
    0,
    {
        DescribeShareGroupOffsetsResponsePartition: (
            Field("partition_index", "int32", (0, 1)),
            Field("start_offset", "int64", (0, 1)),
            Field("leader_epoch", "int32", (0, 1)),
            Field("lag", "int64", (1, 1), default=-1),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1), default=None),
        ),
        DescribeShareGroupOffsetsResponseTopic: (
            Field("topic_name", "string", (0, 1)),
            Field("topic_id", "uuid", (0, 1)),
            Field("partitions", DescribeShareGroupOffsetsResponsePartition, (0, 1), array=True),
        ),
        DescribeShareGroupOffsetsResponseGroup: (
            Field("group_id", "string", (0, 1)),
            Field("topics", DescribeShareGroupOffsetsResponseTopic, (0, 1), array=True),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1), default=None),
        ),
        DescribeShareGroupOffsetsResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("groups", DescribeShareGroupOffsetsResponseGroup, (0, 1), array=True),
        ),
    },
)
