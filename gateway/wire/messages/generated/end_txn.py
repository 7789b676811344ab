"""EndTxn, API key 26: versions 0 to 5, flexible from 3.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class EndTxnRequest:
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False


@dataclass(slots=True)
class EndTxnResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


REQUEST = Schema(
    EndTxnRequest,
    (0, 5),
    3,
    {
        EndTxnRequest: (
            Field("transactional_id", "string", (0, 5)),
            Field("producer_id", "int64", (0, 5)),
            Field("producer_epoch", "int16", (0, 5)),
            Field("committed", "bool", (0, 5)),
        ),
    },
)


RESPONSE = Schema(
    EndTxnResponse,
    (0, 5),
    3,
    {
        EndTxnResponse: (
            Field("throttle_time_ms", "int32", (0, 5)),
            Field("error_code", "int16", (0, 5)),
            Field("producer_id", "int64", (5, 5), default=-1),
            Field("producer_epoch", "int16", (5, 5), default=-1),
        ),
    },
)
