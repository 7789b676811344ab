"""Pin, API key 20004: take, renew or release the pin of a job (`ledger.swaps.requests.TakePin`)."""

from dataclasses import dataclass
from typing import Final

from gateway.wire.primitives import ZERO_UUID
from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class PinRequest:
    job_id: bytes = ZERO_UUID
    release: bool = False
    timeout_ms: int = 60000


@dataclass(slots=True)
class PinResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    entry: int = -1
    """The number of the journal entry that holds the pin."""
    started_ms: int = -1
    """The time of that entry."""


REQUEST = Schema(
    PinRequest,
    VERSIONS,
    0,
    {
        PinRequest: (
            Field("job_id", "uuid", VERSIONS),
            Field("release", "bool", VERSIONS),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    PinResponse,
    VERSIONS,
    0,
    {
        PinResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("entry", "int64", VERSIONS, default=-1),
            Field("started_ms", "int64", VERSIONS, default=-1),
        ),
    },
)
