"""DescribeLogDirs, API key 35: versions 1 to 5, flexible from 2.

Written by tools/generate_messages.py from Kafka 4.3.1's definitions; never by hand.
"""

from dataclasses import dataclass, field

from gateway.wire.schema import Field, Schema


@dataclass(slots=True)
class DescribableLogDirTopic:
    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsPartition:
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


@dataclass(slots=True)
class DescribeLogDirsTopic:
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsResult:
    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


@dataclass(slots=True)
class DescribeLogDirsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResult] = field(default_factory=list)


REQUEST = Schema(
    DescribeLogDirsRequest,
    (1, 5),
    2,
    {
        DescribableLogDirTopic: (
            Field("topic", "string", (1, 5)),
            Field("partitions", "int32", (1, 5), array=True),
        ),
        DescribeLogDirsRequest: (
            Field("topics", DescribableLogDirTopic, (1, 5), array=True, nullable=(1, 5)),
        ),
    },
)


RESPONSE = Schema(
    DescribeLogDirsResponse,
    (1, 5),
    2,
    {
        DescribeLogDirsPartition: (
            Field("partition_index", "int32", (1, 5)),
            Field("partition_size", "int64", (1, 5)),
            Field("offset_lag", "int64", (1, 5)),
            Field("is_future_key", "bool", (1, 5)),
        ),
        DescribeLogDirsTopic: (
            Field("name", "string", (1, 5)),
            Field("partitions", DescribeLogDirsPartition, (1, 5), array=True),
        ),
        DescribeLogDirsResult: (
            Field("error_code", "int16", (1, 5)),
            Field("log_dir", "string", (1, 5)),
            Field("topics", DescribeLogDirsTopic, (1, 5), array=True),
            Field("total_bytes", "int64", (4, 5), default=-1),
            Field("usable_bytes", "int64", (4, 5), default=-1),
            Field("is_cordoned", "bool", (5, 5)),
        ),
        DescribeLogDirsResponse: (
            Field("throttle_time_ms", "int32", (1, 5)),
            Field("error_code", "int16", (3, 5)),
            Field("results", DescribeLogDirsResult, (1, 5), array=True),
        ),
    },
)
