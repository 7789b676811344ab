"""WriteShareGroupState, API key 85: versions 0 to 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class StateBatch:
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0


@dataclass(slots=True)
class PartitionData:
    partition: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: list[StateBatch] = field(default_factory=list)


@dataclass(slots=True)
class WriteStateData:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class WriteShareGroupStateRequest:
    group_id: str = ""
    topics: list[WriteStateData] = field(default_factory=list)


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class WriteStateResult:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = field(default_factory=list)


REQUEST = Schema(
    WriteShareGroupStateRequest,
    (0, 1),
    0,
    {
        StateBatch: (
            Field("first_offset", "int64", (0, 1)),
            Field("last_offset", "int64", (0, 1)),
            Field("delivery_state", "int8", (0, 1)),
            Field("delivery_count", "int16", (0, 1)),
        ),
        PartitionData: (
            Field("partition", "int32", (0, 1)),
            Field("state_epoch", "int32", (0, 1)),
            Field("leader_epoch", "int32", (0, 1)),
            Field("start_offset", "int64", (0, 1)),
            Field("delivery_complete_count", "int32", (1, 1), default=-1),
            Field("state_batches", StateBatch, (0, 1), array=True),
        ),
        WriteStateData: (
            Field("topic_id", "uuid", (0, 1)),
            Field("partitions", PartitionData, (0, 1), array=True),
        ),
        WriteShareGroupStateRequest: (
            Field("group_id", "string", (0, 1)),
            Field("topics", WriteStateData, (0, 1), array=True),
        ),
    },
)


RESPONSE = Schema(
    WriteShareGroupStateResponse,
    (0, 1),
    0,
    {
        PartitionResult: (
            Field("partition", "int32", (0, 1)),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1), default=None),
        ),
        WriteStateResult: (
            Field("topic_id", "uuid", (0, 1)),
            Field("partitions", PartitionResult, (0, 1), array=True),
        ),
        WriteShareGroupStateResponse: (
            Field("results", WriteStateResult, (0, 1), array=True),
        ),
    },
)
