"""AddPartitionsToTxn, API key 24: versions 0 to 5, flexible from 3.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    name: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnTransaction:
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list)
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = 0
    partition_error_code: int = 0


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnResult:
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)


REQUEST = Schema(
    AddPartitionsToTxnRequest,
    (0, 5),
    3,
    {
        AddPartitionsToTxnTopic: (
            Field("name", "string", (0, 5)),
            Field("partitions", "int32", (0, 5), array=True),
        ),
        AddPartitionsToTxnTransaction: (
            Field("transactional_id", "string", (4, 5)),
            Field("producer_id", "int64", (4, 5)),
            Field("producer_epoch", "int16", (4, 5)),
            Field("verify_only", "bool", (4, 5)),
            Field("topics", AddPartitionsToTxnTopic, (4, 5), array=True),
        ),
        AddPartitionsToTxnRequest: (
            Field("transactions", AddPartitionsToTxnTransaction, (4, 5), array=True),
            Field("v3_and_below_transactional_id", "string", (0, 3)),
            Field("v3_and_below_producer_id", "int64", (0, 3)),
            Field("v3_and_below_producer_epoch", "int16", (0, 3)),
            Field("v3_and_below_topics", AddPartitionsToTxnTopic, (0, 3), array=True),
        ),
    },
)


RESPONSE = Schema(
    AddPartitionsToTxnResponse,
    (0, 5),
    3,
    {
        AddPartitionsToTxnPartitionResult: (
            Field("partition_index", "int32", (0, 5)),
            Field("partition_error_code", "int16", (0, 5)),
        ),
        AddPartitionsToTxnTopicResult: (
            Field("name", "string", (0, 5)),
            Field("results_by_partition", AddPartitionsToTxnPartitionResult, (0, 5), array=True),
        ),
        AddPartitionsToTxnResult: (
            Field("transactional_id", "string", (4, 5)),
            Field("topic_results", AddPartitionsToTxnTopicResult, (4, 5), array=True),
        ),
        AddPartitionsToTxnResponse: (
            Field("throttle_time_ms", "int32", (0, 5)),
            Field("error_code", "int16", (4, 5)),
            Field("results_by_transaction", AddPartitionsToTxnResult, (4, 5), array=True),
            Field("results_by_topic_v3_and_below", AddPartitionsToTxnTopicResult, (0, 3), array=True),
        ),
    },
)
