"""AdoptTopic, API key 20007: begin or end the adoption of a topic (`ledger.adoption.requests.AdoptTopic`)."""

from dataclasses import dataclass
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class AdoptTopicRequest:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    """Of the topic if it is created; else its own counts."""
    partitions: int = 0
    place: str = ""
    digest: bytes = ZERO_UUID
    """Of what the bucket has of the topic."""
    step: int = 0
    """0: only say whether it could begin; 1: begin; 2: end."""
    timeout_ms: int = 60000


@dataclass(slots=True)
class AdoptTopicResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = ZERO_UUID
    is_open: bool = False
    """Segments may be adopted into the topic."""
    has_ended: bool = False
    """They were, and it takes records."""


REQUEST = Schema(
    AdoptTopicRequest,
    VERSIONS,
    0,
    {
        AdoptTopicRequest: (
            Field("name", "string", VERSIONS),
            Field("topic_id", "uuid", VERSIONS),
            Field("partitions", "int32", VERSIONS),
            Field("place", "string", VERSIONS),
            Field("digest", "uuid", VERSIONS),
            Field("step", "int8", VERSIONS),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    AdoptTopicResponse,
    VERSIONS,
    0,
    {
        AdoptTopicResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("topic_id", "uuid", VERSIONS),
            Field("is_open", "bool", VERSIONS),
            Field("has_ended", "bool", VERSIONS),
        ),
    },
)
