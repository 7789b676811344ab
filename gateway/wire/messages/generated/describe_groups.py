"""DescribeGroups, API key 15: versions 0 to 6, flexible from 5.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeGroupsRequest:
    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False


@dataclass(slots=True)
class DescribedGroupMember:
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: int = -2147483648


@dataclass(slots=True)
class DescribeGroupsResponse:
    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)


REQUEST = Schema(
    DescribeGroupsRequest,
    (0, 6),
    5,
    {
        DescribeGroupsRequest: (
            Field("groups", "string", (0, 6), array=True),
            Field("include_authorized_operations", "bool", (3, 6)),
        ),
    },
)


RESPONSE = Schema(
    DescribeGroupsResponse,
    (0, 6),
    5,
    {
        DescribedGroupMember: (
            Field("member_id", "string", (0, 6)),
            Field("group_instance_id", "string", (4, 6), nullable=(4, 6), default=None),
            Field("client_id", "string", (0, 6)),
            Field("client_host", "string", (0, 6)),
            Field("member_metadata", "bytes", (0, 6)),
            Field("member_assignment", "bytes", (0, 6)),
        ),
        DescribedGroup: (
            Field("error_code", "int16", (0, 6)),
            Field("error_message", "string", (6, 6), nullable=(6, 6), default=None),
            Field("group_id", "string", (0, 6)),
            Field("group_state", "string", (0, 6)),
            Field("protocol_type", "string", (0, 6)),
            Field("protocol_data", "string", (0, 6)),
            Field("members", DescribedGroupMember, (0, 6), array=True),
            Field("authorized_operations", "int32", (3, 6), default=-2147483648),
        ),
        DescribeGroupsResponse: (
            Field("throttle_time_ms", "int32", (1, 6)),
            Field("groups", DescribedGroup, (0, 6), array=True),
        ),
    },
)
