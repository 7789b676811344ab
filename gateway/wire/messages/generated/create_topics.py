"""CreateTopics, API key 19: versions 2 to 7, flexible from 5.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class CreatableReplicaAssignment:
    partition_index: int = 0
    broker_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class CreatableTopicConfig:
    name: str = ""
    value: str | None = ""


@dataclass(slots=True)
class CreatableTopic:
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@dataclass(slots=True)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    validate_only: bool = False


@dataclass(slots=True)
class CreatableTopicConfigs:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


@dataclass(slots=True)
class CreatableTopicResult:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)


@dataclass(slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)


REQUEST = Schema(
    CreateTopicsRequest,
    (2, 7),
    5,
    {
        CreatableReplicaAssignment: (
            Field("partition_index", "int32", (2, 7)),
            Field("broker_ids", "int32", (2, 7), array=True),
        ),
        CreatableTopicConfig: (
            Field("name", "string", (2, 7)),
            Field("value", "string", (2, 7), nullable=(2, 7)),
        ),
        CreatableTopic: (
            Field("name", "string", (2, 7)),
            Field("num_partitions", "int32", (2, 7)),
            Field("replication_factor", "int16", (2, 7)),
            Field("assignments", CreatableReplicaAssignment, (2, 7), array=True),
            Field("configs", CreatableTopicConfig, (2, 7), array=True),
        ),
        CreateTopicsRequest: (
            Field("topics", CreatableTopic, (2, 7), array=True),
            Field("timeout_ms", "int32", (2, 7), default=60000),
            Field("validate_only", "bool", (2, 7)),
        ),
    },
)


RESPONSE = Schema(
    CreateTopicsResponse,
    (2, 7),
    5,
    {
        CreatableTopicConfigs: (
            Field("name", "string", (5, 7)),
            Field("value", "string", (5, 7), nullable=(5, 7)),
            Field("read_only", "bool", (5, 7)),
            Field("config_source", "int8", (5, 7), default=-1),
            Field("is_sensitive", "bool", (5, 7)),
        ),
        CreatableTopicResult: (
            Field("name", "string", (2, 7)),
            Field("topic_id", "uuid", (7, 7)),
            Field("error_code", "int16", (2, 7)),
            Field("error_message", "string", (2, 7), nullable=(2, 7)),
            Field("topic_config_error_code", "int16", (5, 7), tag=0, tagged=(5, 7)),
            Field("num_partitions", "int32", (5, 7), default=-1),
            Field("replication_factor", "int16", (5, 7), default=-1),
            Field("configs", CreatableTopicConfigs, (5, 7), array=True, nullable=(5, 7)),
        ),
        CreateTopicsResponse: (
            Field("throttle_time_ms", "int32", (2, 7)),
            Field("topics", CreatableTopicResult, (2, 7), array=True),
        ),
    },
)
