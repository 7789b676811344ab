"""Fetch, API key 1: versions 4 to 18, flexible from 12.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ReplicaState:
    replica_id: int = -1
    replica_epoch: int = -1


@dataclass(slots=True)
class FetchPartition:
    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = 9223372036854775807


@dataclass(slots=True)
class FetchTopic:
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)


@dataclass(slots=True)
class ForgottenTopic:
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class FetchRequest:
    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: ReplicaState = field(default_factory=ReplicaState)
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""


@dataclass(slots=True)
class EpochEndOffset:
    epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class SnapshotId:
    end_offset: int = -1
    epoch: int = -1


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int = 0
    first_offset: int = 0


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = field(default_factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: int = -1
    records: bytes | memoryview | None = None


@dataclass(slots=True)
class FetchableTopicResponse:
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


@dataclass(slots=True)
class FetchResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)


REQUEST = Schema(
    FetchRequest,
    (4, 18),
    12,
    {
        ReplicaState: (
            Field("replica_id", "int32", (15, 18), default=-1),
            Field("replica_epoch", "int64", (15, 18), default=-1),
        ),
        FetchPartition: (
            Field("partition", "int32", (4, 18)),
            Field("current_leader_epoch", "int32", (9, 18), default=-1),
            Field("fetch_offset", "int64", (4, 18)),
            Field("last_fetched_epoch", "int32", (12, 18), default=-1),
            Field("log_start_offset", "int64", (5, 18), default=-1),
            Field("partition_max_bytes", "int32", (4, 18)),
            Field("replica_directory_id", "uuid", (17, 18), tag=0, tagged=(17, 18)),
            Field("high_watermark", "int64", (18, 18), default=9223372036854775807, tag=1, tagged=(18, 18)),
        ),
        FetchTopic: (
            Field("topic", "string", (4, 12)),
            Field("topic_id", "uuid", (13, 18)),
            Field("partitions", FetchPartition, (4, 18), array=True),
        ),
        ForgottenTopic: (
            Field("topic", "string", (7, 12)),
            Field("topic_id", "uuid", (13, 18)),
            Field("partitions", "int32", (7, 18), array=True),
        ),
        FetchRequest: (
            Field("cluster_id", "string", (12, 18), nullable=(12, 18), default=None, tag=0, tagged=(12, 18)),
            Field("replica_id", "int32", (4, 14), default=-1),
            Field("replica_state", ReplicaState, (15, 18), tag=1, tagged=(15, 18)),
            Field("max_wait_ms", "int32", (4, 18)),
            Field("min_bytes", "int32", (4, 18)),
            Field("max_bytes", "int32", (4, 18), default=2147483647),
            Field("isolation_level", "int8", (4, 18)),
            Field("session_id", "int32", (7, 18)),
            Field("session_epoch", "int32", (7, 18), default=-1),
            Field("topics", FetchTopic, (4, 18), array=True),
            Field("forgotten_topics_data", ForgottenTopic, (7, 18), array=True),
            Field("rack_id", "string", (11, 18)),
        ),
    },
)


RESPONSE = Schema(
    FetchResponse,
    (4, 18),
    12,
    {
        EpochEndOffset: (
            Field("epoch", "int32", (12, 18), default=-1),
            Field("end_offset", "int64", (12, 18), default=-1),
        ),
        LeaderIdAndEpoch: (
            Field("leader_id", "int32", (12, 18), default=-1),
            Field("leader_epoch", "int32", (12, 18), default=-1),
        ),
        SnapshotId: (
            Field("end_offset", "int64", (4, 18), default=-1),
            Field("epoch", "int32", (4, 18), default=-1),
        ),
        AbortedTransaction: (
            Field("producer_id", "int64", (4, 18)),
            Field("first_offset", "int64", (4, 18)),
        ),
        PartitionData: (
            Field("partition_index", "int32", (4, 18)),
            Field("error_code", "int16", (4, 18)),
            Field("high_watermark", "int64", (4, 18)),
            Field("last_stable_offset", "int64", (4, 18), default=-1),
            Field("log_start_offset", "int64", (5, 18), default=-1),
            Field("diverging_epoch", EpochEndOffset, (12, 18), tag=0, tagged=(12, 18)),
            Field("current_leader", LeaderIdAndEpoch, (12, 18), tag=1, tagged=(12, 18)),
            Field("snapshot_id", SnapshotId, (12, 18), tag=2, tagged=(12, 18)),
            Field("aborted_transactions", AbortedTransaction, (4, 18), array=True, nullable=(4, 18)),
            Field("preferred_read_replica", "int32", (11, 18), default=-1),
            Field("records", "records", (4, 18), nullable=(4, 18)),
        ),
        FetchableTopicResponse: (
            Field("topic", "string", (4, 12)),
            Field("topic_id", "uuid", (13, 18)),
            Field("partitions", PartitionData, (4, 18), array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", (16, 18)),
            Field("host", "string", (16, 18)),
            Field("port", "int32", (16, 18)),
            Field("rack", "string", (16, 18), nullable=(16, 18), default=None),
        ),
        FetchResponse: (
            Field("throttle_time_ms", "int32", (4, 18)),
            Field("error_code", "int16", (7, 18)),
            Field("session_id", "int32", (7, 18)),
            Field("responses", FetchableTopicResponse, (4, 18), array=True),
            Field("node_endpoints", NodeEndpoint, (16, 18), array=True, tag=0, tagged=(16, 18)),
        ),
    },
)
