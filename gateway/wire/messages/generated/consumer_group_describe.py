"""ConsumerGroupDescribe, API key 69: versions 0 to 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False


@dataclass(slots=True)
class TopicPartitions:
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@dataclass(slots=True)
class Member:
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = None
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: int = -1


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[Member] = field(default_factory=list)
    authorized_operations: int = -2147483648


@dataclass(slots=True)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)


REQUEST = Schema(
    ConsumerGroupDescribeRequest,
    (0, 1),
    0,
    {
        ConsumerGroupDescribeRequest: (
            Field("group_ids", "string", (0, 1), array=True),
            Field("include_authorized_operations", "bool", (0, 1)),
        ),
    },
)


RESPONSE = Schema(
    ConsumerGroupDescribeResponse,
    (0, 1),
    0,
    {
        TopicPartitions: (
            Field("topic_id", "uuid", (0, 1)),
            Field("topic_name", "string", (0, 1)),
            Field("partitions", "int32", (0, 1), array=True),
        ),
        Assignment: (
            Field("topic_partitions", TopicPartitions, (0, 1), array=True),
        ),
        Member: (
            Field("member_id", "string", (0, 1)),
            Field("instance_id", "string", (0, 1), nullable=(0, 1), default=None),
            Field("rack_id", "string", (0, 1), nullable=(0, 1), default=None),
            Field("member_epoch", "int32", (0, 1)),
            Field("client_id", "string", (0, 1)),
            Field("client_host", "string", (0, 1)),
            Field("subscribed_topic_names", "string", (0, 1), array=True),
            Field("subscribed_topic_regex", "string", (0, 1), nullable=(0, 1), default=None),
            Field("assignment", Assignment, (0, 1)),
            Field("target_assignment", Assignment, (0, 1)),
            Field("member_type", "int8", (1, 1), default=-1),
        ),
        DescribedGroup: (
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1), default=None),
            Field("group_id", "string", (0, 1)),
            Field("group_state", "string", (0, 1)),
            Field("group_epoch", "int32", (0, 1)),
            Field("assignment_epoch", "int32", (0, 1)),
            Field("assignor_name", "string", (0, 1)),
            Field("members", Member, (0, 1), array=True),
            Field("authorized_operations", "int32", (0, 1), default=-2147483648),
        ),
        ConsumerGroupDescribeResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("groups", DescribedGroup, (0, 1), array=True),
        ),
    },
)
