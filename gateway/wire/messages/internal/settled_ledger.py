"""SettledLedger, API key 20006: name the newest settled ledger of a partition, or find out which one it is
(`ledger.settled.requests.NameSettled`)."""

from dataclasses import dataclass
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class SettledLedgerRequest:
    job_id: bytes = ZERO_UUID
    attempt: int = 0
    topic_id: bytes = ZERO_UUID
    partition_index: int = 0
    object_key: str | None = None
    """Of the `.log`; null: name none."""
    log_size: int = 0
    index_size: int = 0
    meta_size: int = 0
    entry: int = 0
    high_watermark: int = 0
    layout_version: int = 0
    timeout_ms: int = 60000


@dataclass(slots=True)
class SettledLedgerResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    object_key: str | None = None
    """Of the newest one that the journal names, also after a refusal; null: there is none."""
    log_size: int = 0
    index_size: int = 0
    meta_size: int = 0
    entry: int = 0
    high_watermark: int = 0
    layout_version: int = 0
    log_start_offset: int = -1
    """Of the partition now."""
    is_duplicate: bool = False
    """The result is that of an earlier request that was the same."""


REQUEST = Schema(
    SettledLedgerRequest,
    VERSIONS,
    0,
    {
        SettledLedgerRequest: (
            Field("job_id", "uuid", VERSIONS),
            Field("attempt", "int32", VERSIONS),
            Field("topic_id", "uuid", VERSIONS),
            Field("partition_index", "int32", VERSIONS),
            Field("object_key", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("log_size", "int64", VERSIONS),
            Field("index_size", "int64", VERSIONS),
            Field("meta_size", "int64", VERSIONS),
            Field("entry", "int64", VERSIONS),
            Field("high_watermark", "int64", VERSIONS),
            Field("layout_version", "int32", VERSIONS),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    SettledLedgerResponse,
    VERSIONS,
    0,
    {
        SettledLedgerResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("object_key", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("log_size", "int64", VERSIONS),
            Field("index_size", "int64", VERSIONS),
            Field("meta_size", "int64", VERSIONS),
            Field("entry", "int64", VERSIONS),
            Field("high_watermark", "int64", VERSIONS),
            Field("layout_version", "int32", VERSIONS),
            Field("log_start_offset", "int64", VERSIONS, default=-1),
            Field("is_duplicate", "bool", VERSIONS, tag=0, tagged=VERSIONS),
        ),
    },
)
