"""TxnOffsetCommit, API key 28: versions 0 to 5, flexible from 3.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)


@dataclass(slots=True)
class TxnOffsetCommitRequest:
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    partition_index: int = 0
    error_code: int = 0


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)


REQUEST = Schema(
    TxnOffsetCommitRequest,
    (0, 5),
    3,
    {
        TxnOffsetCommitRequestPartition: (
            Field("partition_index", "int32", (0, 5)),
            Field("committed_offset", "int64", (0, 5)),
            Field("committed_leader_epoch", "int32", (2, 5), default=-1),
            Field("committed_metadata", "string", (0, 5), nullable=(0, 5)),
        ),
        TxnOffsetCommitRequestTopic: (
            Field("name", "string", (0, 5)),
            Field("partitions", TxnOffsetCommitRequestPartition, (0, 5), array=True),
        ),
        TxnOffsetCommitRequest: (
            Field("transactional_id", "string", (0, 5)),
            Field("group_id", "string", (0, 5)),
            Field("producer_id", "int64", (0, 5)),
            Field("producer_epoch", "int16", (0, 5)),
            Field("generation_id", "int32", (3, 5), default=-1),
            Field("member_id", "string", (3, 5)),
            Field("group_instance_id", "string", (3, 5), nullable=(3, 5), default=None),
            Field("topics", TxnOffsetCommitRequestTopic, (0, 5), array=True),
        ),
    },
)


RESPONSE = Schema(
    TxnOffsetCommitResponse,
    (0, 5),
    3,
    {
        TxnOffsetCommitResponsePartition: (
            Field("partition_index", "int32", (0, 5)),
            Field("error_code", "int16", (0, 5)),
        ),
        TxnOffsetCommitResponseTopic: (
            Field("name", "string", (0, 5)),
            Field("partitions", TxnOffsetCommitResponsePartition, (0, 5), array=True),
        ),
        TxnOffsetCommitResponse: (
            Field("throttle_time_ms", "int32", (0, 5)),
            Field("topics", TxnOffsetCommitResponseTopic, (0, 5), array=True),
        ),
    },
)
