"""ExpireDelegationToken, API key 40: versions 1 to 2, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ExpireDelegationTokenRequest:
    hmac: bytes = b""
    expiry_time_period_ms: int = 0


@dataclass(slots=True)
class ExpireDelegationTokenResponse:
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0


REQUEST = Schema(
    ExpireDelegationTokenRequest,
    (1, 2),
    2,
    {
        ExpireDelegationTokenRequest: (
            Field("hmac", "bytes", (1, 2)),
            Field("expiry_time_period_ms", "int64", (1, 2)),
        ),
    },
)


RESPONSE = Schema(
    ExpireDelegationTokenResponse,
    (1, 2),
    2,
    {
        ExpireDelegationTokenResponse: (
            Field("error_code", "int16", (1, 2)),
            Field("expiry_timestamp_ms", "int64", (1, 2)),
            Field("throttle_time_ms", "int32", (1, 2)),
        ),
    },
)
