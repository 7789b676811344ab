"""OffsetForLeaderEpoch, API key 23: versions 2 to 4, flexible from 4.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class OffsetForLeaderPartition:
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


@dataclass(slots=True)
class OffsetForLeaderTopic:
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    replica_id: int = -2
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


@dataclass(slots=True)
class EpochEndOffset:
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    topic: str = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)


REQUEST = Schema(
    OffsetForLeaderEpochRequest,
    (2, 4),
    4,
    {
        OffsetForLeaderPartition: (
            Field("partition", "int32", (2, 4)),
            Field("current_leader_epoch", "int32", (2, 4), default=-1),
            Field("leader_epoch", "int32", (2, 4)),
        ),
        OffsetForLeaderTopic: (
            Field("topic", "string", (2, 4)),
            Field("partitions", OffsetForLeaderPartition, (2, 4), array=True),
        ),
        OffsetForLeaderEpochRequest: (
            Field("replica_id", "int32", (3, 4), default=-2),
            Field("topics", OffsetForLeaderTopic, (2, 4), array=True),
        ),
    },
)


RESPONSE = Schema(
    OffsetForLeaderEpochResponse,
    (2, 4),
    4,
    {
        EpochEndOffset: (
            Field("error_code", "int16", (2, 4)),
            Field("partition", "int32", (2, 4)),
            Field("leader_epoch", "int32", (2, 4), default=-1),
            Field("end_offset", "int64", (2, 4), default=-1),
        ),
        OffsetForLeaderTopicResult: (
            Field("topic", "string", (2, 4)),
            Field("partitions", EpochEndOffset, (2, 4), array=True),
        ),
        OffsetForLeaderEpochResponse: (
            Field("throttle_time_ms", "int32", (2, 4)),
            Field("topics", OffsetForLeaderTopicResult, (2, 4), array=True),
        ),
    },
)
