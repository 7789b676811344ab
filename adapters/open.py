"""From a URL to its backend. Opening raises StoreUnavailable, StoreDamaged, StoreTooNew or StoreLocked
with one sentence for the operator, and UnknownStore for a URL that names no backend of this build."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.blobs.files import Access as Access
from adapters.blobs.files import FileBlobs
from adapters.blobs.memory import MemoryBlobs
from adapters.disk import Directories
from adapters.images.sqlite import SqliteImage
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.metadata.sqlite import SqliteMetadata
from adapters.segments.memory import MemorySegments
from adapters.segments.objects import ObjectSegments
from adapters.segments.wal import ROLL_AGE_MS, WalSegments
from ledger.ports import Blobs, ImageStore, Journal, MetadataStore, SegmentStore

METADATA_URLS = ("memory:", "sqlite:PATH")
SEGMENT_URLS = ("memory:", "file:DIR", "objects+memory:", "objects+file:DIR")
BLOB_URLS = ("memory:", "file:DIR")
IMAGE_URLS = ("sqlite:PATH",)

BLOBS_DIRECTORY = "blobs"
"""Blobs of `file:DIR` are in here, so that they can share DIR with the WAL and the metadata."""
MEMORY: Final = "memory:"
OBJECTS: Final = "objects+"
METADATA_FILE: Final = "metadata.db"
IMAGE_FILE: Final = "image.db"
"""These two are in the data directory."""


class UnknownStore(ValueError):
    """The URL names no backend of this build; the message lists the known ones."""


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """URLs of the stores of one gateway."""

    metadata: str
    segments: str
    blobs: str
    image: str | None
    """None: the metadata ends with the process, and so would its image."""


def urls_in(directory: Path, metadata: str = "", data: str = "") -> StoreUrls:
    """The stores in a data directory, unless `metadata` and `data` name others. The blobs are where the
    segments are."""
    metadata_url = metadata or f"sqlite:{directory / METADATA_FILE}"
    data_url = data or f"file:{directory}"
    image_url = None if metadata_url == MEMORY else f"sqlite:{directory / IMAGE_FILE}"
    return StoreUrls(metadata_url, data_url, data_url.removeprefix(OBJECTS), image_url)


def open_metadata(url: str, *, thorough: bool = False) -> MetadataStore:
    """`memory:` or `sqlite:PATH`, whose directory must exist. `thorough`: after a check of all of it."""
    match _split(url):
        case ("memory", ""):
            return MemoryMetadata()
        case ("sqlite", path) if path:
            return SqliteMetadata(path, thorough=thorough)
    raise _unknown("metadata", url, METADATA_URLS)


def open_journal(
    metadata: MetadataStore, *, shard: int = 0, random: Callable[[int], bytes] = os.urandom
) -> Journal:
    """The journal of a shard, in a metadata store, with nonces from `random`. Nothing is opened."""
    return MetadataJournal(metadata, shard, random=random)


def open_segments(url: str, *, shard: int = 0, roll_age_ms: int = ROLL_AGE_MS) -> SegmentStore:
    """`memory:`, `file:DIR` (appended WAL files), or `objects+` and the URL of blobs (an object a draft).

    `roll_age_ms` is how long a WAL file grows: a quarter of the orphan grace at most.
    """
    match _split(url):
        case ("memory", ""):
            return MemorySegments(shard=shard)
        case ("file", path) if path:
            return WalSegments(path, shard=shard, roll_age_ms=roll_age_ms)
    if url.startswith(OBJECTS):
        try:
            return ObjectSegments(open_blobs(url.removeprefix(OBJECTS)), shard=shard)
        except UnknownStore:
            pass
    raise _unknown("segment", url, SEGMENT_URLS)


def open_blobs(url: str, access: Access = Access.OWNED) -> Blobs:
    """`memory:` or `file:DIR`, whose parent must exist; the blobs are in `DIR/blobs`."""
    match _split(url):
        case ("memory", ""):
            return MemoryBlobs()
        case ("file", path) if path:
            if access is not Access.READ_ONLY:
                Directories(Path(path)).open_root()
            return FileBlobs(os.path.join(path, BLOBS_DIRECTORY), access=access)
    raise _unknown("blob", url, BLOB_URLS)


def open_image(url: str) -> ImageStore:
    """`sqlite:PATH`, whose directory must exist. Nothing is opened before the first call."""
    match _split(url):
        case ("sqlite", path) if path:
            return SqliteImage(path)
    raise _unknown("image", url, IMAGE_URLS)


def directory_of(url: str) -> Path | None:
    """The local directory that a store of this URL writes to; None if it writes to none."""
    match _split(url.removeprefix(OBJECTS)):
        case ("file", path) if path:
            return Path(path)
        case ("sqlite", path) if path:
            return Path(path).absolute().parent
    return None


def _split(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition(":")
    return scheme, rest.removeprefix("//") if rest.startswith("///") else rest


def _unknown(kind: str, url: str, known: tuple[str, ...]) -> UnknownStore:
    # Only the scheme is repeated: the rest may carry credentials.
    scheme = url.partition(":")[0] if ":" in url else url
    return UnknownStore(
        f"this build has no {kind} store for {scheme + ':' if ':' in url else repr(scheme)}; "
        f"it knows {', '.join(known)}"
    )
