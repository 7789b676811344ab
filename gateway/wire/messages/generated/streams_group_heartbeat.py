"""StreamsGroupHeartbeat, API key 88: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class KeyValue:
    key: str = ""
    value: str = ""


@dataclass(slots=True)
class TopicInfo:
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: list[KeyValue] = field(default_factory=list)


@dataclass(slots=True)
class CopartitionGroup:
    source_topics: list[int] = field(default_factory=list)
    source_topic_regex: list[int] = field(default_factory=list)
    repartition_source_topics: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Subtopology:
    subtopology_id: str = ""
    source_topics: list[str] = field(default_factory=list)
    source_topic_regex: list[str] = field(default_factory=list)
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)
    repartition_sink_topics: list[str] = field(default_factory=list)
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)
    copartition_groups: list[CopartitionGroup] = field(default_factory=list)


@dataclass(slots=True)
class Topology:
    epoch: int = 0
    subtopologies: list[Subtopology] = field(default_factory=list)


@dataclass(slots=True)
class StreamsGroupHeartbeatRequestTaskIds:
    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StreamsGroupHeartbeatRequestEndpoint:
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class TaskOffset:
    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0


@dataclass(slots=True)
class StreamsGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


@dataclass(slots=True)
class Status:
    status_code: int = 0
    status_detail: str = ""


@dataclass(slots=True)
class StreamsGroupHeartbeatResponseTaskIds:
    subtopology_id: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StreamsGroupHeartbeatResponseEndpoint:
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class TopicPartition:
    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class EndpointToPartitions:
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = field(default_factory=StreamsGroupHeartbeatResponseEndpoint)
    active_partitions: list[TopicPartition] = field(default_factory=list)
    standby_partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: list[Status] | None = field(default_factory=list)
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


REQUEST = Schema(
    StreamsGroupHeartbeatRequest,
    (0, 0),
    0,
    {
        KeyValue: (
            Field("key", "string", (0, 0)),
            Field("value", "string", (0, 0)),
        ),
        TopicInfo: (
            Field("name", "string", (0, 0)),
            Field("partitions", "int32", (0, 0)),
            Field("replication_factor", "int16", (0, 0)),
            Field("topic_configs", KeyValue, (0, 0), array=True),
        ),
        CopartitionGroup: (
            Field("source_topics", "int16", (0, 0), array=True),
            Field("source_topic_regex", "int16", (0, 0), array=True),
            Field("repartition_source_topics", "int16", (0, 0), array=True),
        ),
        Subtopology: (
            Field("subtopology_id", "string", (0, 0)),
            Field("source_topics", "string", (0, 0), array=True),
            Field("source_topic_regex", "string", (0, 0), array=True),
            Field("state_changelog_topics", TopicInfo, (0, 0), array=True),
            Field("repartition_sink_topics", "string", (0, 0), array=True),
            Field("repartition_source_topics", TopicInfo, (0, 0), array=True),
            Field("copartition_groups", CopartitionGroup, (0, 0), array=True),
        ),
        Topology: (
            Field("epoch", "int32", (0, 0)),
            Field("subtopologies", Subtopology, (0, 0), array=True),
        ),
        StreamsGroupHeartbeatRequestTaskIds: (
            Field("subtopology_id", "string", (0, 0)),
            Field("partitions", "int32", (0, 0), array=True),
        ),
        StreamsGroupHeartbeatRequestEndpoint: (
            Field("host", "string", (0, 0)),
            Field("port", "uint16", (0, 0)),
        ),
        TaskOffset: (
            Field("subtopology_id", "string", (0, 0)),
            Field("partition", "int32", (0, 0)),
            Field("offset", "int64", (0, 0)),
        ),
        StreamsGroupHeartbeatRequest: (
            Field("group_id", "string", (0, 0)),
            Field("member_id", "string", (0, 0)),
            Field("member_epoch", "int32", (0, 0)),
            Field("endpoint_information_epoch", "int32", (0, 0)),
            Field("instance_id", "string", (0, 0), nullable=(0, 0), default=None),
            Field("rack_id", "string", (0, 0), nullable=(0, 0), default=None),
            Field("rebalance_timeout_ms", "int32", (0, 0), default=-1),
            Field("topology", Topology, (0, 0), nullable=(0, 0), default=None),
            Field("active_tasks", StreamsGroupHeartbeatRequestTaskIds, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("standby_tasks", StreamsGroupHeartbeatRequestTaskIds, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("warmup_tasks", StreamsGroupHeartbeatRequestTaskIds, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("process_id", "string", (0, 0), nullable=(0, 0), default=None),
            Field("user_endpoint", StreamsGroupHeartbeatRequestEndpoint, (0, 0), nullable=(0, 0), default=None),
            Field("client_tags", KeyValue, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("task_offsets", TaskOffset, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("task_end_offsets", TaskOffset, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("shutdown_application", "bool", (0, 0)),
        ),
    },
)


RESPONSE = Schema(
    StreamsGroupHeartbeatResponse,
    (0, 0),
    0,
    {
        Status: (
            Field("status_code", "int8", (0, 0)),
            Field("status_detail", "string", (0, 0)),
        ),
        StreamsGroupHeartbeatResponseTaskIds: (
            Field("subtopology_id", "string", (0, 0)),
            Field("partitions", "int32", (0, 0), array=True),
        ),
        StreamsGroupHeartbeatResponseEndpoint: (
            Field("host", "string", (0, 0)),
            Field("port", "uint16", (0, 0)),
        ),
        TopicPartition: (
            Field("topic", "string", (0, 0)),
            Field("partitions", "int32", (0, 0), array=True),
        ),
        EndpointToPartitions: (
            Field("user_endpoint", StreamsGroupHeartbeatResponseEndpoint, (0, 0)),
            Field("active_partitions", TopicPartition, (0, 0), array=True),
            Field("standby_partitions", TopicPartition, (0, 0), array=True),
        ),
        StreamsGroupHeartbeatResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0), default=None),
            Field("member_id", "string", (0, 0)),
            Field("member_epoch", "int32", (0, 0)),
            Field("heartbeat_interval_ms", "int32", (0, 0)),
            Field("acceptable_recovery_lag", "int32", (0, 0)),
            Field("task_offset_interval_ms", "int32", (0, 0)),
            Field("status", Status, (0, 0), array=True, nullable=(0, 0)),
            Field("active_tasks", StreamsGroupHeartbeatResponseTaskIds, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("standby_tasks", StreamsGroupHeartbeatResponseTaskIds, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("warmup_tasks", StreamsGroupHeartbeatResponseTaskIds, (0, 0), array=True, nullable=(0, 0), default=None),
            Field("endpoint_information_epoch", "int32", (0, 0)),
            Field("partitions_by_user_endpoint", EndpointToPartitions, (0, 0), array=True, nullable=(0, 0), default=None),
        ),
    },
)
