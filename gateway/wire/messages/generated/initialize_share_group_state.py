"""InitializeShareGroupState, API key 83: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class PartitionData:
    partition: int = 0
    state_epoch: int = 0
    start_offset: int = 0


@dataclass(slots=True)
class InitializeStateData:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class InitializeShareGroupStateRequest:
    group_id: str = ""
    topics: list[InitializeStateData] = field(default_factory=list)


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class InitializeStateResult:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = field(default_factory=list)


REQUEST = Schema(
    InitializeShareGroupStateRequest,
    (0, 0),
    0,
    {
        PartitionData: (
            Field("partition", "int32", (0, 0)),
            Field("state_epoch", "int32", (0, 0)),
            Field("start_offset", "int64", (0, 0)),
        ),
        InitializeStateData: (
            Field("topic_id", "uuid", (0, 0)),
            Field("partitions", PartitionData, (0, 0), array=True),
        ),
        InitializeShareGroupStateRequest: (
            Field("group_id", "string", (0, 0)),
            Field("topics", InitializeStateData, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    InitializeShareGroupStateResponse,
    (0, 0),
    0,
    {
        PartitionResult: (
            Field("partition", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
        ),
        InitializeStateResult: (
            Field("topic_id", "uuid", (0, 0)),
            Field("partitions", PartitionResult, (0, 0), array=True),
        ),
        InitializeShareGroupStateResponse: (
            Field("results", InitializeStateResult, (0, 0), array=True),
        ),
    },
)
