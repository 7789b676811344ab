"""CreateAcls, API key 30: versions 1 to 3, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AclCreation:
    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


@dataclass(slots=True)
class CreateAclsRequest:
    creations: list[AclCreation] = field(default_factory=list)


@dataclass(slots=True)
class AclCreationResult:
    error_code: int = 0
    error_message: str | None = ""


@dataclass(slots=True)
class CreateAclsResponse:
    throttle_time_ms: int = 0
    results: list[AclCreationResult] = field(default_factory=list)


REQUEST = Schema(
    CreateAclsRequest,
    (1, 3),
    2,
    {
        AclCreation: (
            Field("resource_type", "int8", (1, 3)),
            Field("resource_name", "string", (1, 3)),
            Field("resource_pattern_type", "int8", (1, 3), default=3),
            Field("principal", "string", (1, 3)),
            Field("host", "string", (1, 3)),
            Field("operation", "int8", (1, 3)),
            Field("permission_type", "int8", (1, 3)),
        ),
        CreateAclsRequest: (
            Field("creations", AclCreation, (1, 3), array=True),
        ),
    },
)


RESPONSE = Schema(
    CreateAclsResponse,
    (1, 3),
    2,
    {
        AclCreationResult: (
            Field("error_code", "int16", (1, 3)),
            Field("error_message", "string", (1, 3), nullable=(1, 3)),
        ),
        CreateAclsResponse: (
            Field("throttle_time_ms", "int32", (1, 3)),
            Field("results", AclCreationResult, (1, 3), array=True),
        ),
    },
)
