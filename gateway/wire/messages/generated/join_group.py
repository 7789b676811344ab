"""JoinGroup, API key 11: versions 0 to 9, flexible from 6.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    name: str = ""
    metadata: bytes = b""


@dataclass(slots=True)
class JoinGroupRequest:
    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = None


@dataclass(slots=True)
class JoinGroupResponseMember:
    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""


@dataclass(slots=True)
class JoinGroupResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)


REQUEST = Schema(
    JoinGroupRequest,
    (0, 9),
    6,
    {
        JoinGroupRequestProtocol: (
            Field("name", "string", (0, 9)),
            Field("metadata", "bytes", (0, 9)),
        ),
        JoinGroupRequest: (
            Field("group_id", "string", (0, 9)),
            Field("session_timeout_ms", "int32", (0, 9)),
            Field("rebalance_timeout_ms", "int32", (1, 9), default=-1),
            Field("member_id", "string", (0, 9)),
            Field("group_instance_id", "string", (5, 9), nullable=(5, 9), default=None),
            Field("protocol_type", "string", (0, 9)),
            Field("protocols", JoinGroupRequestProtocol, (0, 9), array=True),
            Field("reason", "string", (8, 9), nullable=(8, 9), default=None),
        ),
    },
)


RESPONSE = Schema(
    JoinGroupResponse,
    (0, 9),
    6,
    {
        JoinGroupResponseMember: (
            Field("member_id", "string", (0, 9)),
            Field("group_instance_id", "string", (5, 9), nullable=(5, 9), default=None),
            Field("metadata", "bytes", (0, 9)),
        ),
        JoinGroupResponse: (
            Field("throttle_time_ms", "int32", (2, 9)),
            Field("error_code", "int16", (0, 9)),
            Field("generation_id", "int32", (0, 9), default=-1),
            Field("protocol_type", "string", (7, 9), nullable=(7, 9), default=None),
            Field("protocol_name", "string", (0, 9), nullable=(7, 9)),
            Field("leader", "string", (0, 9)),
            Field("skip_assignment", "bool", (9, 9)),
            Field("member_id", "string", (0, 9)),
            Field("members", JoinGroupResponseMember, (0, 9), array=True),
        ),
    },
)
