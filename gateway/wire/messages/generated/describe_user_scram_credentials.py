"""DescribeUserScramCredentials, API key 50: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class UserName:
    name: str = ""


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = field(default_factory=list)


@dataclass(slots=True)
class CredentialInfo:
    mechanism: int = 0
    iterations: int = 0


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = field(default_factory=list)


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)


REQUEST = Schema(
    DescribeUserScramCredentialsRequest,
    (0, 0),
    0,
    {
        UserName: (
            Field("name", "string", (0, 0)),
        ),
        DescribeUserScramCredentialsRequest: (
            Field("users", UserName, (0, 0), array=True, nullable=(0, 0)),
        ),
    },
)


RESPONSE = Schema(
    DescribeUserScramCredentialsResponse,
    (0, 0),
    0,
    {
        CredentialInfo: (
            Field("mechanism", "int8", (0, 0)),
            Field("iterations", "int32", (0, 0)),
        ),
        DescribeUserScramCredentialsResult: (
            Field("user", "string", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0)),
            Field("credential_infos", CredentialInfo, (0, 0), array=True),
        ),
        DescribeUserScramCredentialsResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0)),
            Field("results", DescribeUserScramCredentialsResult, (0, 0), array=True),
        ),
    },
)
