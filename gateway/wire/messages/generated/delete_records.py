"""DeleteRecords, API key 21: versions 0 to 2, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DeleteRecordsPartition:
    partition_index: int = 0
    offset: int = 0


@dataclass(slots=True)
class DeleteRecordsTopic:
    name: str = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


@dataclass(slots=True)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: int = 0


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class DeleteRecordsResponse:
    throttle_time_ms: int = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)


REQUEST = Schema(
    DeleteRecordsRequest,
    (0, 2),
    2,
    {
        DeleteRecordsPartition: (
            Field("partition_index", "int32", (0, 2)),
            Field("offset", "int64", (0, 2)),
        ),
        DeleteRecordsTopic: (
            Field("name", "string", (0, 2)),
            Field("partitions", DeleteRecordsPartition, (0, 2), array=True),
        ),
        DeleteRecordsRequest: (
            Field("topics", DeleteRecordsTopic, (0, 2), array=True),
            Field("timeout_ms", "int32", (0, 2)),
        ),
    },
)


RESPONSE = Schema(
    DeleteRecordsResponse,
    (0, 2),
    2,
    {
        DeleteRecordsPartitionResult: (
            Field("partition_index", "int32", (0, 2)),
            Field("low_watermark", "int64", (0, 2)),
            Field("error_code", "int16", (0, 2)),
        ),
        DeleteRecordsTopicResult: (
            Field("name", "string", (0, 2)),
            Field("partitions", DeleteRecordsPartitionResult, (0, 2), array=True),
        ),
        DeleteRecordsResponse: (
            Field("throttle_time_ms", "int32", (0, 2)),
            Field("topics", DeleteRecordsTopicResult, (0, 2), array=True),
        ),
    },
)
