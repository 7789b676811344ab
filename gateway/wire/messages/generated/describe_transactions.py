"""DescribeTransactions, API key 65: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeTransactionsRequest:
    transactional_ids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class TopicData:
    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class TransactionState:
    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[TopicData] = field(default_factory=list)


@dataclass(slots=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int = 0
    transaction_states: list[TransactionState] = field(default_factory=list)


REQUEST = Schema(
    DescribeTransactionsRequest,
    (0, 0),
    0,
    {
        DescribeTransactionsRequest: (
            Field("transactional_ids", "string", (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    DescribeTransactionsResponse,
    (0, 0),
    0,
    {
        TopicData: (
            Field("topic", "string", (0, 0)),
            Field("partitions", "int32", (0, 0), array=True),
        ),
        TransactionState: (
            Field("error_code", "int16", (0, 0)),
            Field("transactional_id", "string", (0, 0)),
            Field("transaction_state", "string", (0, 0)),
            Field("transaction_timeout_ms", "int32", (0, 0)),
            Field("transaction_start_time_ms", "int64", (0, 0)),
            Field("producer_id", "int64", (0, 0)),
            Field("producer_epoch", "int16", (0, 0)),
            Field("topics", TopicData, (0, 0), array=True),
        ),
        DescribeTransactionsResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("transaction_states", TransactionState, (0, 0), array=True),
        ),
    },
)
