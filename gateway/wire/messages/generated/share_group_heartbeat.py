"""ShareGroupHeartbeat, API key 76: version 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ShareGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@dataclass(slots=True)
class TopicPartitions:
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@dataclass(slots=True)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


REQUEST = Schema(
    ShareGroupHeartbeatRequest,
    (1, 1),
    0,
    {
        ShareGroupHeartbeatRequest: (
            Field("group_id", "string", (1, 1)),
            Field("member_id", "string", (1, 1)),
            Field("member_epoch", "int32", (1, 1)),
            Field("rack_id", "string", (1, 1), nullable=(1, 1), default=None),
            Field("subscribed_topic_names", "string", (1, 1), array=True, nullable=(1, 1), default=None),
        ),
    },
)


RESPONSE = Schema(
    ShareGroupHeartbeatResponse,
    (1, 1),
    0,
    {
        TopicPartitions: (
            Field("topic_id", "uuid", (1, 1)),
            Field("partitions", "int32", (1, 1), array=True),
        ),
        Assignment: (
            Field("topic_partitions", TopicPartitions, (1, 1), array=True),
        ),
        ShareGroupHeartbeatResponse: (
            Field("throttle_time_ms", "int32", (1, 1)),
            Field("error_code", "int16", (1, 1)),
            Field("error_message", "string", (1, 1), nullable=(1, 1), default=None),
            Field("member_id", "string", (1, 1), nullable=(1, 1), default=None),
            Field("member_epoch", "int32", (1, 1)),
            Field("heartbeat_interval_ms", "int32", (1, 1)),
            Field("assignment", Assignment, (1, 1), nullable=(1, 1), default=None),
        ),
    },
)
