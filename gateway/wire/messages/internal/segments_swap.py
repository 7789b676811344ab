"""SegmentsSwap, API key 20003: put segments in the place of runs (`ledger.swaps.requests.SwapSegments`)."""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class SwapRun:
    start: int = 0
    size: int = 0
    base_offset: int = 0
    last_offset: int = 0
    max_timestamp: int = 0


@dataclass(slots=True)
class SwapSegment:
    object_key: str = ""
    file_size: int = 0
    runs: list[SwapRun] = field(default_factory=list)


@dataclass(slots=True)
class SwappedMarker:
    """`ledger.swaps.requests.SwapMarker`."""

    offset: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    is_commit: bool = False
    timestamp: int = 0


@dataclass(slots=True)
class SegmentsSwapRequest:
    job_id: bytes = ZERO_UUID
    attempt: int = 0
    topic_id: bytes = ZERO_UUID
    partition_index: int = 0
    first_offset: int = 0
    last_offset: int = 0
    layout_version: int = 0
    segments: list[SwapSegment] = field(default_factory=list)
    timeout_ms: int = 60000
    markers: list[SwappedMarker] = field(default_factory=list)
    """All ends of transactions among the runs that are replaced."""


@dataclass(slots=True)
class SegmentsSwapResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    layout_version: int = 0
    log_start_offset: int = 0
    is_duplicate: bool = False
    """The result is that of an earlier request that was the same."""


REQUEST = Schema(
    SegmentsSwapRequest,
    VERSIONS,
    0,
    {
        SwapRun: (
            Field("start", "int32", VERSIONS),
            Field("size", "int32", VERSIONS),
            Field("base_offset", "int64", VERSIONS),
            Field("last_offset", "int64", VERSIONS),
            Field("max_timestamp", "int64", VERSIONS),
        ),
        SwapSegment: (
            Field("object_key", "string", VERSIONS),
            Field("file_size", "int64", VERSIONS),
            Field("runs", SwapRun, VERSIONS, array=True),
        ),
        SwappedMarker: (
            Field("offset", "int64", VERSIONS),
            Field("producer_id", "int64", VERSIONS),
            Field("producer_epoch", "int16", VERSIONS),
            Field("is_commit", "bool", VERSIONS),
            Field("timestamp", "int64", VERSIONS),
        ),
        SegmentsSwapRequest: (
            Field("job_id", "uuid", VERSIONS),
            Field("attempt", "int32", VERSIONS),
            Field("topic_id", "uuid", VERSIONS),
            Field("partition_index", "int32", VERSIONS),
            Field("first_offset", "int64", VERSIONS),
            Field("last_offset", "int64", VERSIONS),
            Field("layout_version", "int32", VERSIONS),
            Field("segments", SwapSegment, VERSIONS, array=True),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
            Field("markers", SwappedMarker, VERSIONS, array=True, tag=0, tagged=VERSIONS),
        ),
    },
)

RESPONSE = Schema(
    SegmentsSwapResponse,
    VERSIONS,
    0,
    {
        SegmentsSwapResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("layout_version", "int32", VERSIONS),
            Field("log_start_offset", "int64", VERSIONS),
            Field("is_duplicate", "bool", VERSIONS, tag=0, tagged=VERSIONS),
        ),
    },
)
