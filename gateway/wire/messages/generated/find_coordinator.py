"""FindCoordinator, API key 10: versions 0 to 6, flexible from 3.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class FindCoordinatorRequest:
    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Coordinator:
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""


@dataclass(slots=True)
class FindCoordinatorResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[Coordinator] = field(default_factory=list)


REQUEST = Schema(
    FindCoordinatorRequest,
    (0, 6),
    3,
    {
        FindCoordinatorRequest: (
            Field("key", "string", (0, 3)),
            Field("key_type", "int8", (1, 6)),
            Field("coordinator_keys", "string", (4, 6), array=True),
        ),
    },
)


RESPONSE = Schema(
    FindCoordinatorResponse,
    (0, 6),
    3,
    {
        Coordinator: (
            Field("key", "string", (4, 6)),
            Field("node_id", "int32", (4, 6)),
            Field("host", "string", (4, 6)),
            Field("port", "int32", (4, 6)),
            Field("error_code", "int16", (4, 6)),
            Field("error_message", "string", (4, 6), nullable=(4, 6)),
        ),
        FindCoordinatorResponse: (
            Field("throttle_time_ms", "int32", (1, 6)),
            Field("error_code", "int16", (0, 3)),
            Field("error_message", "string", (1, 3), nullable=(1, 3)),
            Field("node_id", "int32", (0, 3)),
            Field("host", "string", (0, 3)),
            Field("port", "int32", (0, 3)),
            Field("coordinators", Coordinator, (4, 6), array=True),
        ),
    },
)
