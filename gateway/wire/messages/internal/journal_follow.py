"""JournalFollow, API key 20001: the entries of a shard's journal as they are stored."""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class JournalFollowRequest:
    shard: int = 0
    from_entry: int = 0
    max_bytes: int = 0
    max_wait_ms: int = 0
    """For the next entry, where there is none yet."""
    timeout_ms: int = 60000


@dataclass(slots=True)
class StoredEntry:
    number: int = 0
    data: bytes = b""


@dataclass(slots=True)
class JournalFollowResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    start: int = 0
    """Entries below may be pruned. Above `from_entry`: there are none here, load a snapshot."""
    durable_end: int = 0
    """The number of the next entry."""
    entries: list[StoredEntry] = field(default_factory=list)
    """In order, without gaps."""


REQUEST = Schema(
    JournalFollowRequest,
    VERSIONS,
    0,
    {
        JournalFollowRequest: (
            Field("shard", "int32", VERSIONS),
            Field("from_entry", "int64", VERSIONS),
            Field("max_bytes", "int32", VERSIONS),
            Field("max_wait_ms", "int32", VERSIONS),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    JournalFollowResponse,
    VERSIONS,
    0,
    {
        StoredEntry: (
            Field("number", "int64", VERSIONS),
            Field("data", "bytes", VERSIONS),
        ),
        JournalFollowResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("start", "int64", VERSIONS),
            Field("durable_end", "int64", VERSIONS),
            Field("entries", StoredEntry, VERSIONS, array=True),
        ),
    },
)
