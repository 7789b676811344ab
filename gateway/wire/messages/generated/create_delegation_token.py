"""CreateDelegationToken, API key 38: versions 1 to 3, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class CreatableRenewers:
    principal_type: str = ""
    principal_name: str = ""


@dataclass(slots=True)
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = ""
    owner_principal_name: str | None = ""
    renewers: list[CreatableRenewers] = field(default_factory=list)
    max_lifetime_ms: int = 0


@dataclass(slots=True)
class CreateDelegationTokenResponse:
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int = 0


REQUEST = Schema(
    CreateDelegationTokenRequest,
    (1, 3),
    2,
    {
        CreatableRenewers: (
            Field("principal_type", "string", (1, 3)),
            Field("principal_name", "string", (1, 3)),
        ),
        CreateDelegationTokenRequest: (
            Field("owner_principal_type", "string", (3, 3), nullable=(3, 3)),
            Field("owner_principal_name", "string", (3, 3), nullable=(3, 3)),
            Field("renewers", CreatableRenewers, (1, 3), array=True),
            Field("max_lifetime_ms", "int64", (1, 3)),
        ),
    },
)


RESPONSE = Schema(
    CreateDelegationTokenResponse,
    (1, 3),
    2,
    {
        CreateDelegationTokenResponse: (
            Field("error_code", "int16", (1, 3)),
            Field("principal_type", "string", (1, 3)),
            Field("principal_name", "string", (1, 3)),
            Field("token_requester_principal_type", "string", (3, 3)),
            Field("token_requester_principal_name", "string", (3, 3)),
            Field("issue_timestamp_ms", "int64", (1, 3)),
            Field("expiry_timestamp_ms", "int64", (1, 3)),
            Field("max_timestamp_ms", "int64", (1, 3)),
            Field("token_id", "string", (1, 3)),
            Field("hmac", "bytes", (1, 3)),
            Field("throttle_time_ms", "int32", (1, 3)),
        ),
    },
)
