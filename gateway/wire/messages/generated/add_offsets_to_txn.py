"""AddOffsetsToTxn, API key 25: versions 0 to 4, flexible from 3.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AddOffsetsToTxnRequest:
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""


@dataclass(slots=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = 0
    error_code: int = 0


REQUEST = Schema(
    AddOffsetsToTxnRequest,
    (0, 4),
    3,
    {
        AddOffsetsToTxnRequest: (
            Field("transactional_id", "string", (0, 4)),
            Field("producer_id", "int64", (0, 4)),
            Field("producer_epoch", "int16", (0, 4)),
            Field("group_id", "string", (0, 4)),
        ),
    },
)


RESPONSE = Schema(
    AddOffsetsToTxnResponse,
    (0, 4),
    3,
    {
        AddOffsetsToTxnResponse: (
            Field("throttle_time_ms", "int32", (0, 4)),
            Field("error_code", "int16", (0, 4)),
        ),
    },
)
