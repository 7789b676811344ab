"""InitProducerId, API key 22: versions 0 to 5, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class InitProducerIdRequest:
    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(slots=True)
class InitProducerIdResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0


REQUEST = Schema(
    InitProducerIdRequest,
    (0, 5),
    2,
    {
        InitProducerIdRequest: (
            Field("transactional_id", "string", (0, 5), nullable=(0, 5)),
            Field("transaction_timeout_ms", "int32", (0, 5)),
            Field("producer_id", "int64", (3, 5), default=-1),
            Field("producer_epoch", "int16", (3, 5), default=-1),
        ),
    },
)


RESPONSE = Schema(
    InitProducerIdResponse,
    (0, 5),
    2,
    {
        InitProducerIdResponse: (
            Field("throttle_time_ms", "int32", (0, 5)),
            Field("error_code", "int16", (0, 5)),
            Field("producer_id", "int64", (0, 5), default=-1),
            Field("producer_epoch", "int16", (0, 5)),
        ),
    },
)
