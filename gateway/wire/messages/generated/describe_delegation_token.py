"""DescribeDelegationToken, API key 41: versions 1 to 3, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeDelegationTokenOwner:
    principal_type: str = ""
    principal_name: str = ""


@dataclass(slots=True)
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = field(default_factory=list)


@dataclass(slots=True)
class DescribedDelegationTokenRenewer:
    principal_type: str = ""
    principal_name: str = ""


@dataclass(slots=True)
class DescribedDelegationToken:
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp: int = 0
    expiry_timestamp: int = 0
    max_timestamp: int = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = field(default_factory=list)


@dataclass(slots=True)
class DescribeDelegationTokenResponse:
    error_code: int = 0
    tokens: list[DescribedDelegationToken] = field(default_factory=list)
    throttle_time_ms: int = 0


REQUEST = Schema(
    DescribeDelegationTokenRequest,
    (1, 3),
    2,
    {
        DescribeDelegationTokenOwner: (
            Field("principal_type", "string", (1, 3)),
            Field("principal_name", "string", (1, 3)),
        ),
        DescribeDelegationTokenRequest: (
            Field("owners", DescribeDelegationTokenOwner, (1, 3), array=True, nullable=(1, 3)),
        ),
    },
)


RESPONSE = Schema(
    DescribeDelegationTokenResponse,
    (1, 3),
    2,
    {
        DescribedDelegationTokenRenewer: (
            Field("principal_type", "string", (1, 3)),
            Field("principal_name", "string", (1, 3)),
        ),
        DescribedDelegationToken: (
            Field("principal_type", "string", (1, 3)),
            Field("principal_name", "string", (1, 3)),
            Field("token_requester_principal_type", "string", (3, 3)),
            Field("token_requester_principal_name", "string", (3, 3)),
            Field("issue_timestamp", "int64", (1, 3)),
            Field("expiry_timestamp", "int64", (1, 3)),
            Field("max_timestamp", "int64", (1, 3)),
            Field("token_id", "string", (1, 3)),
            Field("hmac", "bytes", (1, 3)),
            Field("renewers", DescribedDelegationTokenRenewer, (1, 3), array=True),
        ),
        DescribeDelegationTokenResponse: (
            Field("error_code", "int16", (1, 3)),
            Field("tokens", DescribedDelegationToken, (1, 3), array=True),
            Field("throttle_time_ms", "int32", (1, 3)),
        ),
    },
)
