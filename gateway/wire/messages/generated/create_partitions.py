"""CreatePartitions, API key 37: versions 0 to 3, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class CreatePartitionsTopic:
    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsAssignment] | None = field(default_factory=list)


@dataclass(slots=True)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    validate_only: bool = False


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    name: str = ""
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class CreatePartitionsResponse:
    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)


REQUEST = Schema(
    CreatePartitionsRequest,
    (0, 3),
    2,
    {
        CreatePartitionsAssignment: (
            Field("broker_ids", "int32", (0, 3), array=True),
        ),
        CreatePartitionsTopic: (
            Field("name", "string", (0, 3)),
            Field("count", "int32", (0, 3)),
            Field("assignments", CreatePartitionsAssignment, (0, 3), array=True, nullable=(0, 3)),
        ),
        CreatePartitionsRequest: (
            Field("topics", CreatePartitionsTopic, (0, 3), array=True),
            Field("timeout_ms", "int32", (0, 3)),
            Field("validate_only", "bool", (0, 3)),
        ),
    },
)


RESPONSE = Schema(
    CreatePartitionsResponse,
    (0, 3),
    2,
    {
        CreatePartitionsTopicResult: (
            Field("name", "string", (0, 3)),
            Field("error_code", "int16", (0, 3)),
            Field("error_message", "string", (0, 3), nullable=(0, 3), default=None),
        ),
        CreatePartitionsResponse: (
            Field("throttle_time_ms", "int32", (0, 3)),
            Field("results", CreatePartitionsTopicResult, (0, 3), array=True),
        ),
    },
)
