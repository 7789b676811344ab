"""TakeSnapshot, API key 20009: a snapshot of the ledger as it is now."""

from dataclasses import dataclass
from typing import Final

from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class TakeSnapshotRequest:
    place: str = ""
    """Where the backup is that the snapshot is for, for operators."""
    hold_ms: int = 0
    """For how long the objects that the snapshot names stay; 0: nothing is held."""
    timeout_ms: int = 60000


@dataclass(slots=True)
class TakeSnapshotResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    key: str = ""
    """Of its blob."""
    cluster_id: str = ""
    entries: int = 0
    entry_time_ms: int = 0
    """Of the last entry, or of one shortly after it."""
    topics: int = 0
    hold: str = ""
    """Its name; empty if nothing is held."""
    held_until_ms: int = 0


REQUEST = Schema(
    TakeSnapshotRequest,
    VERSIONS,
    0,
    {
        TakeSnapshotRequest: (
            Field("place", "string", VERSIONS),
            Field("hold_ms", "int64", VERSIONS),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    TakeSnapshotResponse,
    VERSIONS,
    0,
    {
        TakeSnapshotResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("key", "string", VERSIONS),
            Field("cluster_id", "string", VERSIONS),
            Field("entries", "int64", VERSIONS),
            Field("entry_time_ms", "int64", VERSIONS),
            Field("topics", "int32", VERSIONS),
            Field("hold", "string", VERSIONS),
            Field("held_until_ms", "int64", VERSIONS),
        ),
    },
)
