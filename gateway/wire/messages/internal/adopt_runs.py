"""AdoptRuns, API key 20008: enter runs of segments that stay where they are
(`ledger.adoption.requests.AdoptRuns`)."""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class AdoptedRun:
    start: int = 0
    size: int = 0
    base_offset: int = 0
    last_offset: int = 0
    max_timestamp: int = 0


@dataclass(slots=True)
class AdoptedFile:
    key: str = ""
    """Below the place."""
    file_size: int = 0
    created_ms: int = 0
    runs: list[AdoptedRun] = field(default_factory=list)


@dataclass(slots=True)
class AdoptRunsRequest:
    topic_id: bytes = ZERO_UUID
    partition_index: int = 0
    place: str = ""
    segments: list[AdoptedFile] = field(default_factory=list)
    timeout_ms: int = 60000


@dataclass(slots=True)
class AdoptRunsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    high_watermark: int = -1
    is_duplicate: bool = False
    """All of it was entered before."""


REQUEST = Schema(
    AdoptRunsRequest,
    VERSIONS,
    0,
    {
        AdoptedRun: (
            Field("start", "int32", VERSIONS),
            Field("size", "int32", VERSIONS),
            Field("base_offset", "int64", VERSIONS),
            Field("last_offset", "int64", VERSIONS),
            Field("max_timestamp", "int64", VERSIONS),
        ),
        AdoptedFile: (
            Field("key", "string", VERSIONS),
            Field("file_size", "int64", VERSIONS),
            Field("created_ms", "int64", VERSIONS),
            Field("runs", AdoptedRun, VERSIONS, array=True),
        ),
        AdoptRunsRequest: (
            Field("topic_id", "uuid", VERSIONS),
            Field("partition_index", "int32", VERSIONS),
            Field("place", "string", VERSIONS),
            Field("segments", AdoptedFile, VERSIONS, array=True),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    AdoptRunsResponse,
    VERSIONS,
    0,
    {
        AdoptRunsResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("high_watermark", "int64", VERSIONS),
            Field("is_duplicate", "bool", VERSIONS),
        ),
    },
)
