"""DisklessDescribeFiles (KIP-1164), API key 100: whether stored objects hold anything that is live."""

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.schema import Field, Schema

VERSIONS: Final = (0, 0)


@dataclass(slots=True)
class DescribeFilesFile:
    object_key: str = ""


@dataclass(slots=True)
class DisklessDescribeFilesRequest:
    files: list[DescribeFilesFile] = field(default_factory=list)
    timeout_ms: int = 60000


@dataclass(slots=True)
class DescribedFile:
    object_key: str = ""
    error_code: int = 0
    error_message: str | None = None
    has_live_batches: bool = False


@dataclass(slots=True)
class DisklessDescribeFilesResponse:
    throttle_time_ms: int = 0
    files: list[DescribedFile] = field(default_factory=list)


REQUEST = Schema(
    DisklessDescribeFilesRequest,
    VERSIONS,
    0,
    {
        DescribeFilesFile: (Field("object_key", "string", VERSIONS),),
        DisklessDescribeFilesRequest: (
            Field("files", DescribeFilesFile, VERSIONS, array=True),
            Field("timeout_ms", "int32", VERSIONS, default=60000),
        ),
    },
)

RESPONSE = Schema(
    DisklessDescribeFilesResponse,
    VERSIONS,
    0,
    {
        DescribedFile: (
            Field("object_key", "string", VERSIONS),
            Field("error_code", "int16", VERSIONS),
            Field("error_message", "string", VERSIONS, nullable=VERSIONS, default=None),
            Field("has_live_batches", "bool", VERSIONS),
        ),
        DisklessDescribeFilesResponse: (
            Field("throttle_time_ms", "int32", VERSIONS),
            Field("files", DescribedFile, VERSIONS, array=True),
        ),
    },
)
