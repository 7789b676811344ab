"""UnregisterBroker, API key 64: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class UnregisterBrokerRequest:
    broker_id: int = 0


@dataclass(slots=True)
class UnregisterBrokerResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""


REQUEST = Schema(
    UnregisterBrokerRequest,
    (0, 0),
    0,
    {
        UnregisterBrokerRequest: (
            Field("broker_id", "int32", (0, 0)),
        ),
    },
)


RESPONSE = Schema(
    UnregisterBrokerResponse,
    (0, 0),
    0,
    {
        UnregisterBrokerResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0)),
        ),
    },
)
