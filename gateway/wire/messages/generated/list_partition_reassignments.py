"""ListPartitionReassignments, API key 46: version 0, flexible from 0.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@dataclass(slots=True)
class OngoingPartitionReassignment:
    partition_index: int = 0
    replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)


@dataclass(slots=True)
class OngoingTopicReassignment:
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = field(default_factory=list)


REQUEST = Schema(
    ListPartitionReassignmentsRequest,
    (0, 0),
    0,
    {
        ListPartitionReassignmentsTopics: (
            Field("name", "string", (0, 0)),
            Field("partition_indexes", "int32", (0, 0), array=True),
        ),
        ListPartitionReassignmentsRequest: (
            Field("timeout_ms", "int32", (0, 0), default=60000),
            Field("topics", ListPartitionReassignmentsTopics, (0, 0), array=True, nullable=(0, 0), default=None),
        ),
    },
)


RESPONSE = Schema(
    ListPartitionReassignmentsResponse,
    (0, 0),
    0,
    {
        OngoingPartitionReassignment: (
            Field("partition_index", "int32", (0, 0)),
            Field("replicas", "int32", (0, 0), array=True),
            Field("adding_replicas", "int32", (0, 0), array=True),
            Field("removing_replicas", "int32", (0, 0), array=True),
        ),
        OngoingTopicReassignment: (
            Field("name", "string", (0, 0)),
            Field("partitions", OngoingPartitionReassignment, (0, 0), array=True),
        ),
        ListPartitionReassignmentsResponse: (
            Field("throttle_time_ms", "int32", (0, 0)),
            Field("error_code", "int16", (0, 0)),
            Field("error_message", "string", (0, 0), nullable=(0, 0)),
            Field("topics", OngoingTopicReassignment, (0, 0), array=True),
        ),
    },
)
