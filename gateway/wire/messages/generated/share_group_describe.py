"""ShareGroupDescribe, API key 77: version 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ShareGroupDescribeRequest:
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
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    assignment: Assignment = field(default_factory=Assignment)


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
class ShareGroupDescribeResponse:
    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)


REQUEST = Schema(
    ShareGroupDescribeRequest,
    (1, 1),
    0,
    {
        ShareGroupDescribeRequest: (
            Field("group_ids", "string", (1, 1), array=True),
            Field("include_authorized_operations", "bool", (1, 1)),
        ),
    },
)


RESPONSE = Schema(
    ShareGroupDescribeResponse,
    (1, 1),
    0,
    {
        TopicPartitions: (
            Field("topic_id", "uuid", (1, 1)),
            Field("topic_name", "string", (1, 1)),
            Field("partitions", "int32", (1, 1), array=True),
        ),
        Assignment: (
            Field("topic_partitions", TopicPartitions, (1, 1), array=True),
        ),
        Member: (
            Field("member_id", "string", (1, 1)),
            Field("rack_id", "string", (1, 1), nullable=(1, 1), default=None),
            Field("member_epoch", "int32", (1, 1)),
            Field("client_id", "string", (1, 1)),
            Field("client_host", "string", (1, 1)),
            Field("subscribed_topic_names", "string", (1, 1), array=True),
            Field("assignment", Assignment, (1, 1)),
        ),
        DescribedGroup: (
            Field("error_code", "int16", (1, 1)),
            Field("error_message", "string", (1, 1), nullable=(1, 1), default=None),
            Field("group_id", "string", (1, 1)),
            Field("group_state", "string", (1, 1)),
            Field("group_epoch", "int32", (1, 1)),
            Field("assignment_epoch", "int32", (1, 1)),
            Field("assignor_name", "string", (1, 1)),
            Field("members", Member, (1, 1), array=True),
            Field("authorized_operations", "int32", (1, 1), default=-2147483648),
        ),
        ShareGroupDescribeResponse: (
            Field("throttle_time_ms", "int32", (1, 1)),
            Field("groups", DescribedGroup, (1, 1), array=True),
        ),
    },
)
