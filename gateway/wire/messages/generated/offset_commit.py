"""OffsetCommit, API key 8: versions 2 to 10, flexible from 8.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetCommitRequest:
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    partition_index: int = 0
    error_code: int = 0


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetCommitResponse:
    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)


REQUEST = Schema(
    OffsetCommitRequest,
    (2, 10),
    8,
    {
        OffsetCommitRequestPartition: (
            Field("partition_index", "int32", (2, 10)),
            Field("committed_offset", "int64", (2, 10)),
            Field("committed_leader_epoch", "int32", (6, 10), default=-1),
            Field("committed_metadata", "string", (2, 10), nullable=(2, 10)),
        ),
        OffsetCommitRequestTopic: (
            Field("name", "string", (2, 9)),
            Field("topic_id", "uuid", (10, 10)),
            Field("partitions", OffsetCommitRequestPartition, (2, 10), array=True),
        ),
        OffsetCommitRequest: (
            Field("group_id", "string", (2, 10)),
            Field("generation_id_or_member_epoch", "int32", (2, 10), default=-1),
            Field("member_id", "string", (2, 10)),
            Field("group_instance_id", "string", (7, 10), nullable=(7, 10), default=None),
            Field("retention_time_ms", "int64", (2, 4), default=-1),
            Field("topics", OffsetCommitRequestTopic, (2, 10), array=True),
        ),
    },
)


RESPONSE = Schema(
    OffsetCommitResponse,
    (2, 10),
    8,
    {
        OffsetCommitResponsePartition: (
            Field("partition_index", "int32", (2, 10)),
            Field("error_code", "int16", (2, 10)),
        ),
        OffsetCommitResponseTopic: (
            Field("name", "string", (2, 9)),
            Field("topic_id", "uuid", (10, 10)),
            Field("partitions", OffsetCommitResponsePartition, (2, 10), array=True),
        ),
        OffsetCommitResponse: (
            Field("throttle_time_ms", "int32", (3, 10)),
            Field("topics", OffsetCommitResponseTopic, (2, 10), array=True),
        ),
    },
)
