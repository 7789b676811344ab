"""DescribeProducers, API key 61: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class TopicRequest:
    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DescribeProducersRequest:
    topics: list[TopicRequest] = field(default_factory=list)


@dataclass(slots=True)
class ProducerState:
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


@dataclass(slots=True)
class PartitionResponse:
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = field(default_factory=list)


@dataclass(slots=True)
class TopicResponse:
    name: str = ""
    partitions: list[PartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class DescribeProducersResponse:
    throttle_time_ms: int = 0
    topics: list[TopicResponse] = field(default_factory=list)


REQUEST = Schema(
    DescribeProducersRequest,
    (0, 0),
    0,
    {
        TopicRequest: (
            Field("name", "string", (0, 0)),
            Field("partition_indexes", "int32", (0, 0), array=True),
        ),
        DescribeProducersRequest: (
            Field("topics", TopicRequest, (0, 0), array=True),
        ),
    },
)


RESPONSE = Schema(
    DescribeProducersResponse,
    (0, 0),
    0,
    {
        ProducerState: (
            Field("producer_id", "int64", (0, 0)),
            Field("producer_epoch", "int32", (0, 0)),
            Field("last_sequence", "int32", (0, 0), default=-1),
            Field("last_timestamp", "int64", (0, 0), default=-1),
            Field("coordinator_epoch", "int32", (0, 0)),
            Field("current_txn_start_offset", "int64", (0, 0), default=-1),
        ),
        PartitionResponse: (
            Field("partition_index", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
            Field("active_producers", ProducerState, (0, 0), array=True),
        ),
        TopicResponse: (
            Field("name", "string", (0, 0)),
            Field("partitions", PartitionResponse, (0, 0), array=True),
        ),
        DescribeProducersResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("topics", TopicResponse, (0, 0), array=True),
        ),
    },
)
