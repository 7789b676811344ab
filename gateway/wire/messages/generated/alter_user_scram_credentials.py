"""AlterUserScramCredentials, API key 51: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ScramCredentialDeletion:
    name: str = ""
    mechanism: int = 0


@dataclass(slots=True)
class ScramCredentialUpsertion:
    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""


@dataclass(slots=True)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""


@dataclass(slots=True)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)


REQUEST = Schema(
    AlterUserScramCredentialsRequest,
    (0, 0),
    0,
    {
        ScramCredentialDeletion: (
            Field("name", "string", (0, 0)),
            Field("mechanism", "int8", (0, 0)),
        ),
        ScramCredentialUpsertion: (
            Field("name", "string", (0, 0)),
            Field("mechanism", "int8", (0, 0)),
            Field("iterations", "int32", (0, 0)),
            Field("salt", "bytes", (0, 0)),
            Field("salted_password", "bytes", (0, 0)),
        ),
        AlterUserScramCredentialsRequest: (
            Field("deletions", ScramCredentialDeletion, (0, 0), array=True),
            Field("upsertions", ScramCredentialUpsertion, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    AlterUserScramCredentialsResponse,
    (0, 0),
    0,
    {
        AlterUserScramCredentialsResult: (
            Field("user", "string", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0)),
        ),
        AlterUserScramCredentialsResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("results", AlterUserScramCredentialsResult, (0, 0), array=True),
        ),
    },
)
