"""DisklessFindBatches (KIP-1164), API key 98: where the batches of partitions are stored.

What is returned are runs, one as one batch. The tagged fields are ours.
"""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class FindBatchesPartition:
    partition_index: int = 0
    offset: int = 0
    max_partition_fetch_bytes: int = 0


@dataclass(slots=True)
class FindBatchesTopic:
    topic_id: bytes = ZERO_UUID
    partitions: list[FindBatchesPartition] = field(default_factory=list)


@dataclass(slots=True)
class DisklessFindBatchesRequest:
    fetch_max_bytes: int = 0
    max_batches_per_partition: int = 0
    topics: list[FindBatchesTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    wants_isolation: bool = False
    """Whether the response has `last_stable_offset` and `aborted_transactions`."""


@dataclass(slots=True)
class FoundBatch:
    batch_id: int = 0
    """Unique in its partition: the base offset."""
    object_key: str = ""
    magic: int = 2
    byte_offset: int = 0
    byte_size: int = 0
    base_offset: int = 0
    last_offset: int = 0
    log_append_timestamp: int = -1
    """Unknown of a run."""
    batch_max_timestamp: int = 0
    """The greatest of the run; below 0: `ledger.partitions.runs.committed_ms`."""
    timestamp_type: int = -1
    """Unknown of a run."""
    attributes: int = -1
    """Unknown of a run."""
    record_count: int = -1
    """Of a run without gaps; else -1."""
    object_kind: int = 1
    """`ledger.objects.uploads.ObjectKind`."""
    producer_id: int = -1
    """Of a marker, as the next two; it has no object key."""
    producer_epoch: int = -1
    is_commit: bool = False


@dataclass(slots=True)
class AbortedFound:
    """Transactional records of the producer from `first_offset` to `last_offset` are aborted."""

    producer_id: int = 0
    first_offset: int = 0
    last_offset: int = 0


@dataclass(slots=True)
class FindBatchesPartitionResponse:
    partition_index: int = 0
    error_code: int = 0
    log_start_offset: int = -1
    high_watermark: int = -1
    batches: list[FoundBatch] = field(default_factory=list)
    layout_version: int = 0
    """The one that all these runs have."""
    last_stable_offset: int = -1
    aborted_transactions: list[AbortedFound] = field(default_factory=list)
    """All that have records in these runs, from the requested offset on."""


@dataclass(slots=True)
class FindBatchesTopicResponse:
    topic_id: bytes = ZERO_UUID
    partitions: list[FindBatchesPartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class DisklessFindBatchesResponse:
    throttle_time_ms: int = 0
    topics: list[FindBatchesTopicResponse] = field(default_factory=list)


REQUEST = Schema(
    DisklessFindBatchesRequest,
    VERSIONS,
    0,
    {
        FindBatchesPartition: (
            Field("partition_index", "int32", VERSIONS),
            Field("offset", "int64", VERSIONS),
            Field("max_partition_fetch_bytes", "int32", VERSIONS),
        ),
        FindBatchesTopic: (
            Field("topic_id", "uuid", VERSIONS),
            Field("partitions", FindBatchesPartition, VERSIONS, array=True),
        ),
        DisklessFindBatchesRequest: (
            Field("fetch_max_bytes", "int32", VERSIONS),
            Field("max_batches_per_partition", "int32", VERSIONS),
            Field("topics", FindBatchesTopic, VERSIONS, array=True),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
            Field("wants_isolation", "bool", VERSIONS, tag=0, tagged=VERSIONS),
        ),
    },
)

RESPONSE = Schema(
    DisklessFindBatchesResponse,
    VERSIONS,
    0,
    {
        FoundBatch: (
            Field("batch_id", "int64", VERSIONS),
            Field("object_key", "string", VERSIONS),
            Field("magic", "int8", VERSIONS, default=2),
            Field("byte_offset", "int64", VERSIONS),
            Field("byte_size", "int64", VERSIONS),
            Field("base_offset", "int64", VERSIONS),
            Field("last_offset", "int64", VERSIONS),
            Field("log_append_timestamp", "int64", VERSIONS, default=-1),
            Field("batch_max_timestamp", "int64", VERSIONS),
            Field("timestamp_type", "int8", VERSIONS, default=-1),
            Field("attributes", "int16", VERSIONS, default=-1, tag=0, tagged=VERSIONS),
            Field("record_count", "int32", VERSIONS, default=-1, tag=1, tagged=VERSIONS),
            Field("object_kind", "int8", VERSIONS, default=1, tag=2, tagged=VERSIONS),
            Field("producer_id", "int64", VERSIONS, default=-1, tag=3, tagged=VERSIONS),
            Field("producer_epoch", "int16", VERSIONS, default=-1, tag=4, tagged=VERSIONS),
            Field("is_commit", "bool", VERSIONS, tag=5, tagged=VERSIONS),
        ),
        AbortedFound: (
            Field("producer_id", "int64", VERSIONS),
            Field("first_offset", "int64", VERSIONS),
            Field("last_offset", "int64", VERSIONS),
        ),
        FindBatchesPartitionResponse: (
            Field("partition_index", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("log_start_offset", "int64", VERSIONS, default=-1),
            Field("high_watermark", "int64", VERSIONS, default=-1),
            Field("batches", FoundBatch, VERSIONS, array=True),
            Field("layout_version", "int32", VERSIONS, tag=0, tagged=VERSIONS),
            Field("last_stable_offset", "int64", VERSIONS, default=-1, tag=1, tagged=VERSIONS),
            Field("aborted_transactions", AbortedFound, VERSIONS, array=True, tag=2, tagged=VERSIONS),
        ),
        FindBatchesTopicResponse: (
            Field("topic_id", "uuid", VERSIONS),
            Field("partitions", FindBatchesPartitionResponse, VERSIONS, array=True),
        ),
        DisklessFindBatchesResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("topics", FindBatchesTopicResponse, VERSIONS, array=True),
        ),
    },
)
