"""OffsetFetch, API key 9: versions 1 to 10, flexible from 6.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchRequest:
    group_id: str = ""
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)
    require_stable: bool = False


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponse:
    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)
    error_code: int = 0
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)


REQUEST = Schema(
    OffsetFetchRequest,
    (1, 10),
    6,
    {
        OffsetFetchRequestTopic: (
            Field("name", "string", (1, 7)),
            Field("partition_indexes", "int32", (1, 7), array=True),
        ),
        OffsetFetchRequestTopics: (
            Field("name", "string", (8, 9)),
            Field("topic_id", "uuid", (10, 10)),
            Field("partition_indexes", "int32", (8, 10), array=True),
        ),
        OffsetFetchRequestGroup: (
            Field("group_id", "string", (8, 10)),
            Field("member_id", "string", (9, 10), nullable=(9, 10), default=None),
            Field("member_epoch", "int32", (9, 10), default=-1),
            Field("topics", OffsetFetchRequestTopics, (8, 10), array=True, nullable=(8, 10)),
        ),
        OffsetFetchRequest: (
            Field("group_id", "string", (1, 7)),
            Field("topics", OffsetFetchRequestTopic, (1, 7), array=True, nullable=(2, 7)),
            Field("groups", OffsetFetchRequestGroup, (8, 10), array=True),
            Field("require_stable", "bool", (7, 10)),
        ),
    },
)


RESPONSE = Schema(
    OffsetFetchResponse,
    (1, 10),
    6,
    {
        OffsetFetchResponsePartition: (
            Field("partition_index", "int32", (1, 7)),
            Field("committed_offset", "int64", (1, 7)),
            Field("committed_leader_epoch", "int32", (5, 7), default=-1),
            Field("metadata", "string", (1, 7), nullable=(1, 7)),
            Field("error_code", "int16", (1, 7)),
        ),
        OffsetFetchResponseTopic: (
            Field("name", "string", (1, 7)),
            Field("partitions", OffsetFetchResponsePartition, (1, 7), array=True),
        ),
        OffsetFetchResponsePartitions: (
            Field("partition_index", "int32", (8, 10)),
            Field("committed_offset", "int64", (8, 10)),
            Field("committed_leader_epoch", "int32", (8, 10), default=-1),
            Field("metadata", "string", (8, 10), nullable=(8, 10)),
            Field("error_code", "int16", (8, 10)),
        ),
        OffsetFetchResponseTopics: (
            Field("name", "string", (8, 9)),
            Field("topic_id", "uuid", (10, 10)),
            Field("partitions", OffsetFetchResponsePartitions, (8, 10), array=True),
        ),
        OffsetFetchResponseGroup: (
            Field("group_id", "string", (8, 10)),
            Field("topics", OffsetFetchResponseTopics, (8, 10), array=True),
            Field("error_code", "int16", (8, 10)),
        ),
        OffsetFetchResponse: (
            Field("throttle_time_ms", "int32", (3, 10)),
            Field("topics", OffsetFetchResponseTopic, (1, 7), array=True),
            Field("error_code", "int16", (2, 7)),
            Field("groups", OffsetFetchResponseGroup, (8, 10), array=True),
        ),
    },
)
