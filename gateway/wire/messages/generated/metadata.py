"""Metadata, API key 3: versions 0 to 13, flexible from 9.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class MetadataRequestTopic:
    topic_id: bytes = ZERO_UUID
    name: str | None = ""


@dataclass(slots=True)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


@dataclass(slots=True)
class MetadataResponseBroker:
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


@dataclass(slots=True)
class MetadataResponsePartition:
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    offline_replicas: list[int] = field(default_factory=list)


@dataclass(slots=True)
class MetadataResponseTopic:
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648


@dataclass(slots=True)
class MetadataResponse:
    throttle_time_ms: int = 0
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0


REQUEST = Schema(
    MetadataRequest,
    (0, 13),
    9,
    {
        MetadataRequestTopic: (
            Field("topic_id", "uuid", (10, 13)),
            Field("name", "string", (0, 13), nullable=(10, 13)),
        ),
        MetadataRequest: (
            Field("topics", MetadataRequestTopic, (0, 13), array=True, nullable=(1, 13)),
            Field("allow_auto_topic_creation", "bool", (4, 13), default=True),
            Field("include_cluster_authorized_operations", "bool", (8, 10)),
            Field("include_topic_authorized_operations", "bool", (8, 13)),
        ),
    },
)


RESPONSE = Schema(
    MetadataResponse,
    (0, 13),
    9,
    {
        MetadataResponseBroker: (
            Field("node_id", "int32", (0, 13)),
            Field("host", "string", (0, 13)),
            Field("port", "int32", (0, 13)),
            Field("rack", "string", (1, 13), nullable=(1, 13), default=None),
        ),
        MetadataResponsePartition: (
            Field("error_code", "int16", (0, 13)),
            Field("partition_index", "int32", (0, 13)),
            Field("leader_id", "int32", (0, 13)),
            Field("leader_epoch", "int32", (7, 13), default=-1),
            Field("replica_nodes", "int32", (0, 13), array=True),
            Field("isr_nodes", "int32", (0, 13), array=True),
            Field("offline_replicas", "int32", (5, 13), array=True),
        ),
        MetadataResponseTopic: (
            Field("error_code", "int16", (0, 13)),
            Field("name", "string", (0, 13), nullable=(12, 13)),
            Field("topic_id", "uuid", (10, 13)),
            Field("is_internal", "bool", (1, 13)),
            Field("partitions", MetadataResponsePartition, (0, 13), array=True),
            Field("topic_authorized_operations", "int32", (8, 13), default=-2147483648),
        ),
        MetadataResponse: (
            Field("throttle_time_ms", "int32", (3, 13)),
            Field("brokers", MetadataResponseBroker, (0, 13), array=True),
            Field("cluster_id", "string", (2, 13), nullable=(2, 13), default=None),
            Field("controller_id", "int32", (1, 13), default=-1),
            Field("topics", MetadataResponseTopic, (0, 13), array=True),
            Field("cluster_authorized_operations", "int32", (8, 10), default=-2147483648),
            Field("error_code", "int16", (13, 13)),
        ),
    },
)
