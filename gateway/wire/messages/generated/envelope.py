"""Envelope, API key 58: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class EnvelopeRequest:
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


@dataclass(slots=True)
class EnvelopeResponse:
    response_data: bytes | None = None
    error_code: int = 0


REQUEST = Schema(
    EnvelopeRequest,
    (0, 0),
    0,
    {
        EnvelopeRequest: (
            Field("request_data", "bytes", (0, 0)),
            Field("request_principal", "bytes", (0, 0), nullable=(0, 0)),
            Field("client_host_address", "bytes", (0, 0)),
        ),
    },
)


RESPONSE = Schema(
    EnvelopeResponse,
    (0, 0),
    0,
    {
        EnvelopeResponse: (
            Field("response_data", "bytes", (0, 0), nullable=(0, 0), default=None),
            Field("error_code", "int16", (0, 0)),
        ),
    },
)
