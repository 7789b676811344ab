"""ConsumerGroupHeartbeat, API key 68: versions 0 to 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequestTopicPartitions:
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponseTopicPartitions:
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Assignment:
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


REQUEST = Schema(
    ConsumerGroupHeartbeatRequest,
    (0, 1),
    0,
    {
        ConsumerGroupHeartbeatRequestTopicPartitions: (
            Field("topic_id", "uuid", (0, 1)),
            Field("partitions", "int32", (0, 1), array=True),
        ),
        ConsumerGroupHeartbeatRequest: (
            Field("group_id", "string", (0, 1)),
            Field("member_id", "string", (0, 1)),
            Field("member_epoch", "int32", (0, 1)),
            Field("instance_id", "string", (0, 1), nullable=(0, 1), default=None),
            Field("rack_id", "string", (0, 1), nullable=(0, 1), default=None),
            Field("rebalance_timeout_ms", "int32", (0, 1), default=-1),
            Field("subscribed_topic_names", "string", (0, 1), array=True, nullable=(0, 1), default=None),
            Field("subscribed_topic_regex", "string", (1, 1), nullable=(1, 1), default=None),
            Field("server_assignor", "string", (0, 1), nullable=(0, 1), default=None),
            Field("topic_partitions", ConsumerGroupHeartbeatRequestTopicPartitions, (0, 1), array=True, nullable=(0, 1), default=None),
        ),
    },
)


RESPONSE = Schema(
    ConsumerGroupHeartbeatResponse,
    (0, 1),
    0,
    {
        ConsumerGroupHeartbeatResponseTopicPartitions: (
            Field("topic_id", "uuid", (0, 1)),
            Field("partitions", "int32", (0, 1), array=True),
        ),
        Assignment: (
            Field("topic_partitions", ConsumerGroupHeartbeatResponseTopicPartitions, (0, 1), array=True),
        ),
        ConsumerGroupHeartbeatResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1), default=None),
            Field("member_id", "string", (0, 1), nullable=(0, 1), default=None),
            Field("member_epoch", "int32", (0, 1)),
            Field("heartbeat_interval_ms", "int32", (0, 1)),
            Field("assignment", Assignment, (0, 1), nullable=(0, 1), default=None),
        ),
    },
)
