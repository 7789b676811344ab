"""AddRaftVoter, API key 80: versions 0 to 1, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class Listener:
    name: str = ""
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class AddRaftVoterRequest:
    cluster_id: str | None = ""
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    ack_when_committed: bool = True


@dataclass(slots=True)
class AddRaftVoterResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""


REQUEST = Schema(
    AddRaftVoterRequest,
    (0, 1),
    0,
    {
        Listener: (
            Field("name", "string", (0, 1)),
            Field("host", "string", (0, 1)),
            Field("port", "uint16", (0, 1)),
        ),
        AddRaftVoterRequest: (
            Field("cluster_id", "string", (0, 1), nullable=(0, 1)),
            Field("timeout_ms", "int32", (0, 1)),
            Field("voter_id", "int32", (0, 1)),
            Field("voter_directory_id", "uuid", (0, 1)),
            Field("listeners", Listener, (0, 1), array=True),
            Field("ack_when_committed", "bool", (1, 1), default=True),
        ),
    },
)


RESPONSE = Schema(
    AddRaftVoterResponse,
    (0, 1),
    0,
    {
        AddRaftVoterResponse: (
            Field("throttle_time_ms", "int32", (0, 1)),
            Field("error_code", "int16", (0, 1)),
            Field("error_message", "string", (0, 1), nullable=(0, 1)),
        ),
    },
)
