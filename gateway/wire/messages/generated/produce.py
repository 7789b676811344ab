"""Produce, API key 0: versions 3 to 13, flexible from 9.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class PartitionProduceData:
    index: int = 0
    records: bytes | memoryview | None = None


@dataclass(slots=True)
class TopicProduceData:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_data: list[PartitionProduceData] = field(default_factory=list)


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    batch_index: int = 0
    batch_index_error_message: str | None = None


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class PartitionProduceResponse:
    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list)
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)


@dataclass(slots=True)
class TopicProduceResponse:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


@dataclass(slots=True)
class ProduceResponse:
    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int = 0
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)


REQUEST = Schema(
    ProduceRequest,
    (3, 13),
    9,
    {
        PartitionProduceData: (
            Field("index", "int32", (3, 13)),
            Field("records", "records", (3, 13), nullable=(3, 13)),
        ),
        TopicProduceData: (
            Field("name", "string", (3, 12)),
            Field("topic_id", "uuid", (13, 13)),
            Field("partition_data", PartitionProduceData, (3, 13), array=True),
        ),
        ProduceRequest: (
            Field("transactional_id", "string", (3, 13), nullable=(3, 13), default=None),
            Field("acks", "int16", (3, 13)),
            Field("timeout_ms", "int32", (3, 13)),
            Field("topic_data", TopicProduceData, (3, 13), array=True),
        ),
    },
)


RESPONSE = Schema(
    ProduceResponse,
    (3, 13),
    9,
    {
        BatchIndexAndErrorMessage: (
            Field("batch_index", "int32", (8, 13)),
            Field("batch_index_error_message", "string", (8, 13), nullable=(8, 13), default=None),
        ),
        LeaderIdAndEpoch: (
            Field("leader_id", "int32", (10, 13), default=-1),
            Field("leader_epoch", "int32", (10, 13), default=-1),
        ),
        PartitionProduceResponse: (
            Field("index", "int32", (3, 13)),
            Field("error_code", "int16", (3, 13)),
            Field("base_offset", "int64", (3, 13)),
            Field("log_append_time_ms", "int64", (3, 13), default=-1),
            Field("log_start_offset", "int64", (5, 13), default=-1),
            Field("record_errors", BatchIndexAndErrorMessage, (8, 13), array=True),
            Field("error_message", "string", (8, 13), nullable=(8, 13), default=None),
            Field("current_leader", LeaderIdAndEpoch, (10, 13), tag=0, tagged=(10, 13)),
        ),
        TopicProduceResponse: (
            Field("name", "string", (3, 12)),
            Field("topic_id", "uuid", (13, 13)),
            Field("partition_responses", PartitionProduceResponse, (3, 13), array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", (10, 13)),
            Field("host", "string", (10, 13)),
            Field("port", "int32", (10, 13)),
            Field("rack", "string", (10, 13), nullable=(10, 13), default=None),
        ),
        ProduceResponse: (
            Field("responses", TopicProduceResponse, (3, 13), array=True),
            Field("throttle_time_ms", "int32", (3, 13)),
            Field("node_endpoints", NodeEndpoint, (10, 13), array=True, tag=0, tagged=(10, 13)),
        ),
    },
)
