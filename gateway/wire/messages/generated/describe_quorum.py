"""DescribeQuorum, API key 55: versions 0 to 2, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribeQuorumRequestPartitionData:
    partition_index: int = 0


@dataclass(slots=True)
class DescribeQuorumRequestTopicData:
    topic_name: str = ""
    partitions: list[DescribeQuorumRequestPartitionData] = field(default_factory=list)


@dataclass(slots=True)
class DescribeQuorumRequest:
    topics: list[DescribeQuorumRequestTopicData] = field(default_factory=list)


@dataclass(slots=True)
class ReplicaState:
    replica_id: int = 0
    replica_directory_id: bytes = ZERO_UUID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


@dataclass(slots=True)
class DescribeQuorumResponsePartitionData:
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: list[ReplicaState] = field(default_factory=list)
    observers: list[ReplicaState] = field(default_factory=list)


@dataclass(slots=True)
class DescribeQuorumResponseTopicData:
    topic_name: str = ""
    partitions: list[DescribeQuorumResponsePartitionData] = field(default_factory=list)


@dataclass(slots=True)
class Listener:
    name: str = ""
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class Node:
    node_id: int = 0
    listeners: list[Listener] = field(default_factory=list)


@dataclass(slots=True)
class DescribeQuorumResponse:
    error_code: int = 0
    error_message: str | None = ""
    topics: list[DescribeQuorumResponseTopicData] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


REQUEST = Schema(
    DescribeQuorumRequest,
    (0, 2),
    0,
    {
        DescribeQuorumRequestPartitionData: (
            Field("partition_index", "int32", (0, 2)),
        ),
        DescribeQuorumRequestTopicData: (
            Field("topic_name", "string", (0, 2)),
            Field("partitions", DescribeQuorumRequestPartitionData, (0, 2), array=True),
        ),
        DescribeQuorumRequest: (
            Field("topics", DescribeQuorumRequestTopicData, (0, 2), array=True),
        ),
    },
)


RESPONSE = Schema(
    DescribeQuorumResponse,
    (0, 2),
    0,
    {
        ReplicaState: (
            Field("replica_id", "int32", (0, 2)),
            Field("replica_directory_id", "uuid", (2, 2)),
            Field("log_end_offset", "int64", (0, 2)),
            Field("last_fetch_timestamp", "int64", (1, 2), default=-1),
            Field("last_caught_up_timestamp", "int64", (1, 2), default=-1),
        ),
        DescribeQuorumResponsePartitionData: (
            Field("partition_index", "int32", (0, 2)),
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (2, 2), nullable=(2, 2)),
            Field("leader_id", "int32", (0, 2)),
            Field("leader_epoch", "int32", (0, 2)),
            Field("high_watermark", "int64", (0, 2)),
            Field("current_voters", ReplicaState, (0, 2), array=True),
            Field("observers", ReplicaState, (0, 2), array=True),
        ),
        DescribeQuorumResponseTopicData: (
            Field("topic_name", "string", (0, 2)),
            Field("partitions", DescribeQuorumResponsePartitionData, (0, 2), array=True),
        ),
        Listener: (
            Field("name", "string", (2, 2)),
            Field("host", "string", (2, 2)),
            Field("port", "uint16", (2, 2)),
        ),
        Node: (
            Field("node_id", "int32", (2, 2)),
            Field("listeners", Listener, (2, 2), array=True),
        ),
        DescribeQuorumResponse: (
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (2, 2), nullable=(2, 2)),
            Field("topics", DescribeQuorumResponseTopicData, (0, 2), array=True),
            Field("nodes", Node, (2, 2), array=True),
        ),
    },
)
