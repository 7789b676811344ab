"""SaslHandshake, API key 17: versions 0 to 1, never flexible.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class SaslHandshakeRequest:
    mechanism: str = ""


@dataclass(slots=True)
class SaslHandshakeResponse:
    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)


REQUEST = Schema(
    SaslHandshakeRequest,
    (0, 1),
    2,
    {
        SaslHandshakeRequest: (
            Field("mechanism", "string", (0, 1)),
        ),
    },
)


RESPONSE = Schema(
    SaslHandshakeResponse,
    (0, 1),
    2,
    {
        SaslHandshakeResponse: (
            Field("error_code", "int16", (0, 1)),
            Field("mechanisms", "string", (0, 1), array=True),
        ),
    },
)
