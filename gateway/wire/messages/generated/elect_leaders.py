"""ElectLeaders, API key 43: versions 0 to 2, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class TopicPartitions:
    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ElectLeadersRequest:
    election_type: int = 0
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: int = 60000


@dataclass(slots=True)
class PartitionResult:
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""


@dataclass(slots=True)
class ReplicaElectionResult:
    topic: str = ""
    partition_result: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class ElectLeadersResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)


REQUEST = Schema(
    ElectLeadersRequest,
    (0, 2),
    2,
    {
        TopicPartitions: (
            Field("topic", "string", (0, 2)),
            Field("partitions", "int32", (0, 2), array=True),
        ),
        ElectLeadersRequest: (
            Field("election_type", "int8", (1, 2)),
            Field("topic_partitions", TopicPartitions, (0, 2), array=True, nullable=(0, 2)),
            Field("timeout_ms", "int32", (0, 2), default=60000),
        ),
    },
)


RESPONSE = Schema(
    ElectLeadersResponse,
    (0, 2),
    2,
    {
        PartitionResult: (
            Field("partition_id", "int32", (0, 2)),
            Field("error_code", "int16", (0, 2)),
            Field("error_message", "string", (0, 2), nullable=(0, 2)),
        ),
        ReplicaElectionResult: (
            Field("topic", "string", (0, 2)),
            Field("partition_result", PartitionResult, (0, 2), array=True),
        ),
        ElectLeadersResponse: (
            Field("throttle_time_ms", "int32", (0, 2)),
            Field("error_code", "int16", (1, 2)),
            Field("replica_election_results", ReplicaElectionResult, (0, 2), array=True),
        ),
    },
)
