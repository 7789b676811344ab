"""Heartbeat, API key 12: versions 0 to 4, flexible from 4.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class HeartbeatRequest:
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class HeartbeatResponse:
    throttle_time_ms: int = 0
    error_code: int = 0


REQUEST = Schema(
    HeartbeatRequest,
    (0, 4),
    4,
    {
        HeartbeatRequest: (
            Field("group_id", "string", (0, 4)),
            Field("generation_id", "int32", (0, 4)),
            Field("member_id", "string", (0, 4)),
            Field("group_instance_id", "string", (3, 4), nullable=(3, 4), default=None),
        ),
    },
)


RESPONSE = Schema(
    HeartbeatResponse,
    (0, 4),
    4,
    {
        HeartbeatResponse: (
            Field("throttle_time_ms", "int32", (1, 4)),
            Field("error_code", "int16", (0, 4)),
        ),
    },
)
