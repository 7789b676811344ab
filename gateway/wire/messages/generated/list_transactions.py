"""ListTransactions, API key 66: versions 0 to 2, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ListTransactionsRequest:
    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[int] = field(default_factory=list)
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


@dataclass(slots=True)
class TransactionState:
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


@dataclass(slots=True)
class ListTransactionsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)


REQUEST = Schema(
    ListTransactionsRequest,
    (0, 2),
    0,
    {
        ListTransactionsRequest: (
            Field("state_filters", "string", (0, 2), array=True),
            Field("producer_id_filters", "int64", (0, 2), array=True),
            Field("duration_filter", "int64", (1, 2), default=-1),
            Field("transactional_id_pattern", "string", (2, 2), nullable=(2, 2), default=None),
        ),
    },
)


RESPONSE = Schema(
    ListTransactionsResponse,
    (0, 2),
    0,
    {
        TransactionState: (
            Field("transactional_id", "string", (0, 2)),
            Field("producer_id", "int64", (0, 2)),
            Field("transaction_state", "string", (0, 2)),
        ),
        ListTransactionsResponse: (
            Field("throttle_time_ms", "int32", (0, 2)),
            Field("error_code", "int16", (0, 2)),
            Field("unknown_state_filters", "string", (0, 2), array=True),
            Field("transaction_states", TransactionState, (0, 2), array=True),
        ),
    },
)
