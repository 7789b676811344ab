"""AlterReplicaLogDirs, API key 34: versions 1 to 2, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class AlterReplicaLogDirTopic:
    name: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDir:
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult:
    partition_index: int = 0
    error_code: int = 0


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult:
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)


REQUEST = Schema(
    AlterReplicaLogDirsRequest,
    (1, 2),
    2,
    {
        AlterReplicaLogDirTopic: (
            Field("name", "string", (1, 2)),
            Field("partitions", "int32", (1, 2), array=True),
        ),
        AlterReplicaLogDir: (
            Field("path", "string", (1, 2)),
            Field("topics", AlterReplicaLogDirTopic, (1, 2), array=True),
        ),
        AlterReplicaLogDirsRequest: (
            Field("dirs", AlterReplicaLogDir, (1, 2), array=True),
        ),
    },
)


RESPONSE = Schema(
    AlterReplicaLogDirsResponse,
    (1, 2),
    2,
    {
        AlterReplicaLogDirPartitionResult: (
            Field("partition_index", "int32", (1, 2)),
            Field("error_code", "int16", (1, 2)),
        ),
        AlterReplicaLogDirTopicResult: (
            Field("topic_name", "string", (1, 2)),
            Field("partitions", AlterReplicaLogDirPartitionResult, (1, 2), array=True),
        ),
        AlterReplicaLogDirsResponse: (
            Field("throttle_time_ms", "int32", (1, 2)),
            Field("results", AlterReplicaLogDirTopicResult, (1, 2), array=True),
        ),
    },
)
