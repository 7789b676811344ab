"""DescribeShard, API key 20005: what a job needs to begin, and the topics page by page."""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class DescribeShardRequest:
    shard: int = 0
    after: bytes = ZERO_UUID
    """Topics whose ids come after this one."""
    max_topics: int = 0
    timeout_ms: int = 60000


@dataclass(slots=True)
class ShardTopic:
    topic_id: bytes = ZERO_UUID
    name: str = ""
    partitions: int = 0


@dataclass(slots=True)
class DescribeShardResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    cluster_id: str = ""
    data_url: str = ""
    """Of the segment store, without secrets."""
    feature_level: int = 0
    applied_entries: int = 0
    """Durable and applied: the number of the next entry."""
    entry_time_ms: int = 0
    topics: list[ShardTopic] = field(default_factory=list)
    """In the order of their ids."""
    has_more: bool = False


REQUEST = Schema(
    DescribeShardRequest,
    VERSIONS,
    0,
    {
        DescribeShardRequest: (
            Field("shard", "int32", VERSIONS),
            Field("after", "uuid", VERSIONS),
            Field("max_topics", "int32", VERSIONS),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    DescribeShardResponse,
    VERSIONS,
    0,
    {
        ShardTopic: (
            Field("topic_id", "uuid", VERSIONS),
            Field("name", "string", VERSIONS),
            Field("partitions", "int32", VERSIONS),
        ),
        DescribeShardResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("cluster_id", "string", VERSIONS),
            Field("data_url", "string", VERSIONS),
            Field("feature_level", "int16", VERSIONS),
            Field("applied_entries", "int64", VERSIONS),
            Field("entry_time_ms", "int64", VERSIONS),
            Field("topics", ShardTopic, VERSIONS, array=True),
            Field("has_more", "bool", VERSIONS),
        ),
    },
)
