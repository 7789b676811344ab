"""RemoveRaftVoter, API key 81: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class RemoveRaftVoterRequest:
    cluster_id: str | None = ""
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID


@dataclass(slots=True)
class RemoveRaftVoterResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""


REQUEST = Schema(
    RemoveRaftVoterRequest,
    (0, 0),
    0,
    {
        RemoveRaftVoterRequest: (
            Field("cluster_id", "string", (0, 0), nullable=(0, 0)),
            Field("voter_id", "int32", (0, 0)),
            Field("voter_directory_id", "uuid", (0, 0)),
        ),
    },
)


RESPONSE = Schema(
    RemoveRaftVoterResponse,
    (0, 0),
    0,
    {
        RemoveRaftVoterResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0)),
        ),
    },
)
