"""ReadShareGroupState, API key 84: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class PartitionData:
    partition: int = 0
    leader_epoch: int = 0


@dataclass(slots=True)
class ReadStateData:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class ReadShareGroupStateRequest:
    group_id: str = ""
    topics: list[ReadStateData] = field(default_factory=list)


@dataclass(slots=True)
class StateBatch:
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: list[StateBatch] = field(default_factory=list)


@dataclass(slots=True)
class ReadStateResult:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = field(default_factory=list)


REQUEST = Schema(
    ReadShareGroupStateRequest,
    (0, 0),
    0,
    {
        PartitionData: (
            Field("partition", "int32", (0, 0)),
            Field("leader_epoch", "int32", (0, 0)),
        ),
        ReadStateData: (
            Field("topic_id", "uuid", (0, 0)),
            Field("partitions", PartitionData, (0, 0), array=True),
        ),
        ReadShareGroupStateRequest: (
            Field("group_id", "string", (0, 0)),
            Field("topics", ReadStateData, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    ReadShareGroupStateResponse,
    (0, 0),
    0,
    {
        StateBatch: (
            Field("first_offset", "int64", (0, 0)),
            Field("last_offset", "int64", (0, 0)),
            Field("delivery_state", "int8", (0, 0)),
            Field("delivery_count", "int16", (0, 0)),
        ),
        PartitionResult: (
            Field("partition", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
            Field("state_epoch", "int32", (0, 0)),
            Field("start_offset", "int64", (0, 0)),
            Field("state_batches", StateBatch, (0, 0), array=True),
        ),
        ReadStateResult: (
            Field("topic_id", "uuid", (0, 0)),
            Field("partitions", PartitionResult, (0, 0), array=True),
        ),
        ReadShareGroupStateResponse: (
            Field("results", ReadStateResult, (0, 0), array=True),
        ),
    },
)
