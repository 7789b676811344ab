"""ReadShareGroupStateSummary, API key 87: versions 0 to 1, flexible from 0.

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
class ReadStateSummaryData:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class ReadShareGroupStateSummaryRequest:
    group_id: str = ""
    topics: list[ReadStateSummaryData] = field(default_factory=list)


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1


@dataclass(slots=True)
class ReadStateSummaryResult:
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = field(default_factory=list)


REQUEST = Schema(
    ReadShareGroupStateSummaryRequest,
    (0, 1),
    0,
    {
        PartitionData: (
            Field("partition", "int32", (0, 1)),
            Field("leader_epoch", "int32", (0, 1)),
        ),
        ReadStateSummaryData: (
            Field("topic_id", "uuid", (0, 1)),
            Field("partitions", PartitionData, (0, 1), array=True),
        ),
        ReadShareGroupStateSummaryRequest: (
            Field("group_id", "string", (0, 1)),
            Field("topics", ReadStateSummaryData, (0, 1), array=True),
        ),
    },
)


RESPONSE = Schema(
    ReadShareGroupStateSummaryResponse,
    (0, 1),
    0,
    {
        PartitionResult: (
            Field("partition", "int32", (0, 1)),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1), default=None),
            Field("state_epoch", "int32", (0, 1)),
            Field("leader_epoch", "int32", (0, 1)),
            Field("start_offset", "int64", (0, 1)),
            Field("delivery_complete_count", "int32", (1, 1), default=-1),
        ),
        ReadStateSummaryResult: (
            Field("topic_id", "uuid", (0, 1)),
            Field("partitions", PartitionResult, (0, 1), array=True),
        ),
        ReadShareGroupStateSummaryResponse: (
            Field("results", ReadStateSummaryResult, (0, 1), array=True),
        ),
    },
)
