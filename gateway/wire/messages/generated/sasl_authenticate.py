"""SaslAuthenticate, API key 36: versions 0 to 2, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = b""


@dataclass(slots=True)
class SaslAuthenticateResponse:
    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


REQUEST = Schema(
    SaslAuthenticateRequest,
    (0, 2),
    2,
    {
        SaslAuthenticateRequest: (
            Field("auth_bytes", "bytes", (0, 2)),
        ),
    },
)


RESPONSE = Schema(
    SaslAuthenticateResponse,
    (0, 2),
    2,
    {
        SaslAuthenticateResponse: (
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (0, 2), nullable=(0, 2)),
            Field("auth_bytes", "bytes", (0, 2)),
            Field("session_lifetime_ms", "int64", (1, 2)),
        ),
    },
)
