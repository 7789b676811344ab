"""DisklessCommitFile (KIP-1164), API key 95: number the batches of a stored object.

The tagged fields of a batch are ours: what KIP-1164 leaves out of a batch, and transactions need.
"""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class CommitFileBatch:
    magic: int = 0
    request_id: int = 0
    topic_id: bytes = ZERO_UUID
    partition_index: int = 0
    byte_offset: int = 0
    size: int = 0
    base_offset: int = 0
    last_offset: int = 0
    batch_max_timestamp: int = 0
    timestamp_type: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_sequence: int = -1
    attributes: int = -1
    """Of the batch's header; -1: all but the timestamp type are 0."""
    record_count: int = -1
    """Of the batch's header; -1: as many as offsets."""


@dataclass(slots=True)
class DisklessCommitFileRequest:
    object_key: str = ""
    object_format: int = 0
    file_size: int = 0
    owner_ids: list[int] = field(default_factory=list)
    batches: list[CommitFileBatch] = field(default_factory=list)
    timeout_ms: int = 60000


@dataclass(slots=True)
class CommitFileBatchResponse:
    error_code: int = 0
    error_message: str | None = None
    assigned_base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    is_duplicate: bool = False


@dataclass(slots=True)
class DisklessCommitFileResponse:
    throttle_time_ms: int = 0
    batches: list[CommitFileBatchResponse] = field(default_factory=list)
    """In the order of the request."""


REQUEST = Schema(
    DisklessCommitFileRequest,
    VERSIONS,
    0,
    {
        CommitFileBatch: (
            Field("magic", "int8", VERSIONS),
            Field("request_id", "int32", VERSIONS),
            Field("topic_id", "uuid", VERSIONS),
            Field("partition_index", "int32", VERSIONS),
            Field("byte_offset", "int32", VERSIONS),
            Field("size", "int32", VERSIONS),
            Field("base_offset", "int64", VERSIONS),
            Field("last_offset", "int64", VERSIONS),
            Field("batch_max_timestamp", "int64", VERSIONS),
            Field("timestamp_type", "int8", VERSIONS),
            Field("producer_id", "int64", VERSIONS, default=-1),
            Field("producer_epoch", "int16", VERSIONS, default=-1),
            Field("base_sequence", "int32", VERSIONS, default=-1),
            Field("last_sequence", "int32", VERSIONS, default=-1),
            Field("attributes", "int16", VERSIONS, default=-1, tag=0, tagged=VERSIONS),
            Field("record_count", "int32", VERSIONS, default=-1, tag=1, tagged=VERSIONS),
        ),
        DisklessCommitFileRequest: (
            Field("object_key", "string", VERSIONS),
            Field("object_format", "int8", VERSIONS),
            Field("file_size", "int64", VERSIONS),
            Field("owner_ids", "int32", VERSIONS, array=True),
            Field("batches", CommitFileBatch, VERSIONS, array=True),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    DisklessCommitFileResponse,
    VERSIONS,
    0,
    {
        CommitFileBatchResponse: (
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("assigned_base_offset", "int64", VERSIONS, default=-1),
            Field("log_append_time", "int64", VERSIONS, default=-1),
            Field("log_start_offset", "int64", VERSIONS, default=-1),
            Field("is_duplicate", "bool", VERSIONS),
        ),
        DisklessCommitFileResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("batches", CommitFileBatchResponse, VERSIONS, array=True),
        ),
    },
)
