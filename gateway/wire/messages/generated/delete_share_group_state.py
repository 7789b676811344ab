"""DeleteShareGroupState, API key 86: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class PartitionData:
    partition: int = 0


@dataclass(slots=True)
class DeleteStateData:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class DeleteShareGroupStateRequest:
    group_id: str = ""
    topics: list[DeleteStateData] = field(default_factory=list)


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DeleteStateResult:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = field(default_factory=list)


REQUEST = Schema(
    DeleteShareGroupStateRequest,
    (0, 0),
    0,
    {
        PartitionData: (
            Field("partition", "int32", (0, 0)),
        ),
        DeleteStateData: (
            Field("topic_id", "uuid", (0, 0)),
            Field("partitions", PartitionData, (0, 0), array=True),
        ),
        DeleteShareGroupStateRequest: (
            Field("group_id", "string", (0, 0)),
            Field("topics", DeleteStateData, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    DeleteShareGroupStateResponse,
    (0, 0),
    0,
    {
        PartitionResult: (
            Field("partition", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
        ),
        DeleteStateResult: (
            Field("topic_id", "uuid", (0, 0)),
            Field("partitions", PartitionResult, (0, 0), array=True),
        ),
        DeleteShareGroupStateResponse: (
            Field("results", DeleteStateResult, (0, 0), array=True),
        ),
    },
)
