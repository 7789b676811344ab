"""SyncGroup, API key 14: versions 0 to 5, flexible from 4.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    member_id: str = ""
    assignment: bytes = b""


@dataclass(slots=True)
class SyncGroupRequest:
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


@dataclass(slots=True)
class SyncGroupResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


REQUEST = Schema(
    SyncGroupRequest,
    (0, 5),
    4,
    {
        SyncGroupRequestAssignment: (
            Field("member_id", "string", (0, 5)),
            Field("assignment", "bytes", (0, 5)),
        ),
        SyncGroupRequest: (
            Field("group_id", "string", (0, 5)),
            Field("generation_id", "int32", (0, 5)),
            Field("member_id", "string", (0, 5)),
            Field("group_instance_id", "string", (3, 5), nullable=(3, 5), default=None),
            Field("protocol_type", "string", (5, 5), nullable=(5, 5), default=None),
            Field("protocol_name", "string", (5, 5), nullable=(5, 5), default=None),
            Field("assignments", SyncGroupRequestAssignment, (0, 5), array=True),
        ),
    },
)


RESPONSE = Schema(
    SyncGroupResponse,
    (0, 5),
    4,
    {
        SyncGroupResponse: (
            Field("throttle_time_ms", "int32", (1, 5)),
            Field("error_code", "int16", (0, 5)),
            Field("protocol_type", "string", (5, 5), nullable=(5, 5), default=None),
            Field("protocol_name", "string", (5, 5), nullable=(5, 5), default=None),
            Field("assignment", "bytes", (0, 5)),
        ),
    },
)
