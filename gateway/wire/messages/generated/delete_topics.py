"""DeleteTopics, API key 20: versions 1 to 6, flexible from 4.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DeleteTopicState:
    name: str | None = None
    topic_id: bytes = ZERO_UUID


@dataclass(slots=True)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = field(default_factory=list)
    topic_names: list[str] = field(default_factory=list)
    timeout_ms: int = 0


@dataclass(slots=True)
class DeletableTopicResult:
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DeleteTopicsResponse:
    throttle_time_ms: int = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)


REQUEST = Schema(
    DeleteTopicsRequest,
    (1, 6),
    4,
    {
        DeleteTopicState: (
            Field("name", "string", (6, 6), nullable=(6, 6), default=None),
            Field("topic_id", "uuid", (6, 6)),
        ),
        DeleteTopicsRequest: (
            Field("topics", DeleteTopicState, (6, 6), array=True),
            Field("topic_names", "string", (1, 5), array=True),
            Field("timeout_ms", "int32", (1, 6)),
        ),
    },
)


RESPONSE = Schema(
    DeleteTopicsResponse,
    (1, 6),
    4,
    {
        DeletableTopicResult: (
            Field("name", "string", (1, 6), nullable=(6, 6)),
            Field("topic_id", "uuid", (6, 6)),
            Field("error_code", "int16", (1, 6)),
            Field("error_message", "string", (5, 6), nullable=(5, 6), default=None),
        ),
        DeleteTopicsResponse: (
            Field("throttle_time_ms", "int32", (1, 6)),
            Field("responses", DeletableTopicResult, (1, 6), array=True),
        ),
    },
)
