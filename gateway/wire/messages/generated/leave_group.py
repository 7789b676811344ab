"""LeaveGroup, API key 13: versions 0 to 5, flexible from 4.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class MemberIdentity:
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class LeaveGroupRequest:
    group_id: str = ""
    member_id: str = ""
    members: list[MemberIdentity] = field(default_factory=list)


@dataclass(slots=True)
class MemberResponse:
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0


@dataclass(slots=True)
class LeaveGroupResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[MemberResponse] = field(default_factory=list)


REQUEST = Schema(
    LeaveGroupRequest,
    (0, 5),
    4,
    {
        MemberIdentity: (
            Field("member_id", "string", (3, 5)),
            Field("group_instance_id", "string", (3, 5), nullable=(3, 5), default=None),
            Field("reason", "string", (5, 5), nullable=(5, 5), default=None),
        ),
        LeaveGroupRequest: (
            Field("group_id", "string", (0, 5)),
            Field("member_id", "string", (0, 2)),
            Field("members", MemberIdentity, (3, 5), array=True),
        ),
    },
)


RESPONSE = Schema(
    LeaveGroupResponse,
    (0, 5),
    4,
    {
        MemberResponse: (
            Field("member_id", "string", (3, 5)),
            Field("group_instance_id", "string", (3, 5), nullable=(3, 5)),
            Field("error_code", "int16", (3, 5)),
        ),
        LeaveGroupResponse: (
            Field("throttle_time_ms", "int32", (1, 5)),
            Field("error_code", "int16", (0, 5)),
            Field("members", MemberResponse, (3, 5), array=True),
        ),
    },
)
