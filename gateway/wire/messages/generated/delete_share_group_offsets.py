"""DeleteShareGroupOffsets, API key 92: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = ""


@dataclass(slots=True)
class DeleteShareGroupOffsetsRequest:
    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(default_factory=list)


@dataclass(slots=True)
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(default_factory=list)


REQUEST = Schema(
    DeleteShareGroupOffsetsRequest,
    (0, 0),
    0,
    {
        DeleteShareGroupOffsetsRequestTopic: (
            Field("topic_name", "string", (0, 0)),
        ),
        DeleteShareGroupOffsetsRequest: (
            Field("group_id", "string", (0, 0)),
            Field("topics", DeleteShareGroupOffsetsRequestTopic, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    DeleteShareGroupOffsetsResponse,
    (0, 0),
    0,
    {
        DeleteShareGroupOffsetsResponseTopic: (
            Field("topic_name", "string", (0, 0)),
            Field("topic_id", "uuid", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
        ),
        DeleteShareGroupOffsetsResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
            Field("responses", DeleteShareGroupOffsetsResponseTopic, (0, 0), array=True),
        ),
    },
)
