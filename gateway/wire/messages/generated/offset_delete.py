"""OffsetDelete, API key 47: version 0, never flexible.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    partition_index: int = 0


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteRequest:
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    partition_index: int = 0
    error_code: int = 0


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteResponse:
    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)


REQUEST = Schema(
    OffsetDeleteRequest,
    (0, 0),
    1,
    {
        OffsetDeleteRequestPartition: (
            Field("partition_index", "int32", (0, 0)),
        ),
        OffsetDeleteRequestTopic: (
            Field("name", "string", (0, 0)),
            Field("partitions", OffsetDeleteRequestPartition, (0, 0), array=True),
        ),
        OffsetDeleteRequest: (
            Field("group_id", "string", (0, 0)),
            Field("topics", OffsetDeleteRequestTopic, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    OffsetDeleteResponse,
    (0, 0),
    1,
    {
        OffsetDeleteResponsePartition: (
            Field("partition_index", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
        ),
        OffsetDeleteResponseTopic: (
            Field("name", "string", (0, 0)),
            Field("partitions", OffsetDeleteResponsePartition, (0, 0), array=True),
        ),
        OffsetDeleteResponse: (
            Field("error_code", "int16", (0, 0)),
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("topics", OffsetDeleteResponseTopic, (0, 0), array=True),
        ),
    },
)
