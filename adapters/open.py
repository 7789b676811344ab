"""From a URL to its backend. Opening raises StoreUnavailable, StoreDamaged, StoreTooNew or StoreLocked
with one sentence for the operator, and UnknownStore for a URL that names no backend of this build.

Stores elsewhere are opened by `FarStores` (`adapters/far.py`), which a gateway has one of: it has their
credentials and shares their clients.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.blobs.files import Access as Access
from adapters.blobs.files import FileBlobs
from adapters.blobs.memory import MemoryBlobs
from adapters.disk import OTHER_PLACE as OTHER_PLACE
from adapters.disk import Directories
from adapters.far import FarOptions as FarOptions
from adapters.far import FarStores as FarStores
from adapters.far import UnknownStore as UnknownStore
from adapters.images.sqlite import SqliteImage
from adapters.journals.guarded import GuardedJournal, is_guarding
from adapters.journals.inline import InlineRule
from adapters.journals.metadata import MetadataJournal
from adapters.local_log.objects import LogFilesRead
from adapters.local_log.opening import open_local_log
from adapters.log_directory import LOG_DIRECTORY as LOG_DIRECTORY
from adapters.log_directory import METADATA_FILE as METADATA_FILE
from adapters.log_directory import LogDirectory, open_log_directory
from adapters.metadata.memory import MemoryMetadata
from adapters.metadata.sqlite import SqliteMetadata
from adapters.segments.adopted import AdoptedSegments
from adapters.segments.inline_and_objects import InlineAndObjects
from adapters.segments.log_objects import REPLACED_DIRECTORY as REPLACED_DIRECTORY
from adapters.segments.log_objects import LogsInBlobs, ReadLogAndReplaced, ReplacedLogs
from adapters.segments.memory import MemorySegments
from adapters.segments.objects import ObjectSegments
from adapters.segments.segment_blobs import LocalRanges, SegmentBlobs
from adapters.segments.wal import ROLL_AGE_MS, WalFilesRead, WalSegments
from adapters.segments.wal_and_segments import LogFiles, WalAndSegments, WalAndSegmentsOfJob
from adapters.threads import DEADLINE_S
from ledger.errors import StoreUnavailable
from ledger.ports import Blobs, ImageStore, JobSegments, Journal, MetadataStore, SegmentStore

S3_URL: Final = "s3://BUCKET/PREFIX"
METADATA_URLS = (
    "memory:",
    "sqlite:PATH",
    "file:DIR",
    S3_URL,
    "etcd://HOST[,HOST]/PREFIX",
    "filer://HOST/ROOT",
)
SEGMENT_URLS = ("memory:", "file:DIR", "objects+memory:", "objects+file:DIR", S3_URL)
BLOB_URLS = ("memory:", "file:DIR", S3_URL)
KAFSCALE_URLS = ("file:DIR", S3_URL)
IMAGE_URLS = ("sqlite:PATH",)

BLOBS_DIRECTORY = "blobs"
"""Blobs of `file:DIR` are in here, so that they can share DIR with the WAL and the metadata."""
MEMORY: Final = "memory:"
NO_IMAGE: Final = "none"
OBJECTS: Final = "objects+"
JOB_DEADLINE_S: Final = 300.0
"""A job writes up to 2 GiB with one call."""
IMAGE_FILE: Final = "image.db"
"""In the data directory, as METADATA_FILE."""


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """URLs of the stores of one gateway."""

    metadata: str
    segments: str
    blobs: str
    image: str | None
    """None: a restart reads a snapshot and the journal alone."""
    directory: Path | None
    """The data directory, if any of them is there."""

    @property
    def is_lasting(self) -> bool:
        """False if the metadata ends with the process."""
        return self.metadata != MEMORY


def urls_in(directory: Path, metadata: str = "", data: str = "", image: str = "") -> StoreUrls:
    """The stores in a data directory, unless `metadata`, `data` and `image` name others ("none": no image).
    The blobs are where the segments are. Without an `image` it is there too, unless the metadata is in
    memory, or neither metadata nor data is on this host."""
    metadata_url = metadata or f"sqlite:{directory / METADATA_FILE}"
    data_url = data or f"file:{directory}"
    is_local = any(directory_of(url) is not None for url in (metadata_url, data_url))
    image_here = not image and metadata_url != MEMORY and is_local
    image_url = f"sqlite:{directory / IMAGE_FILE}" if image_here else image
    return StoreUrls(
        metadata_url,
        data_url,
        data_url.removeprefix(OBJECTS),
        None if image_url in ("", NO_IMAGE) else image_url,
        directory if image_here or not metadata or not data else None,
    )


def log_url_in(directory: Path) -> str:
    """The metadata URL of a local log in this directory."""
    return f"file:{directory}"


def log_directory_of(metadata: str) -> Path | None:
    """The directory that has the local log of this metadata URL; None if it names a metadata store."""
    match _split(metadata):
        case ("file", path) if path:
            return Path(path)
    return None


async def open_log(
    directory: Path,
    *,
    shard: int = 0,
    cluster_id: bytes = b"",
    takes_batches: bool = True,
    thorough: bool = False,
    random: Callable[[int], bytes] = os.urandom,
) -> LogDirectory:
    """The journal in a local log, as `adapters.log_directory.open_log_directory` has it."""
    return await open_log_directory(
        directory,
        open_log=open_local_log,
        shard=shard,
        cluster_id=cluster_id,
        takes_batches=takes_batches,
        thorough=thorough,
        random=random,
    )


def open_metadata(url: str, *, thorough: bool = False, far: FarStores | None = None) -> MetadataStore:
    """`memory:`, `sqlite:PATH`, whose directory must exist, or what is far. `thorough`: after a check of all
    of it."""
    match _split(url):
        case ("memory", ""):
            return MemoryMetadata()
        case ("sqlite", path) if path:
            return SqliteMetadata(path, thorough=thorough)
        case ("s3" | "etcd" | "filer", _):
            return (far or FarStores()).metadata(url)
    raise _unknown("metadata", url, METADATA_URLS)


def open_journal(
    metadata: MetadataStore, *, shard: int = 0, random: Callable[[int], bytes] = os.urandom
) -> Journal:
    """The journal of a shard, in a metadata store, with nonces from `random`. Nothing is opened."""
    if is_guarding(metadata):
        return GuardedJournal(metadata, shard, random=random)
    return MetadataJournal(metadata, shard, random=random)


def open_segments(
    url: str,
    *,
    shard: int = 0,
    roll_age_ms: int = ROLL_AGE_MS,
    far: FarStores | None = None,
    logs: LogFiles | None = None,
) -> SegmentStore:
    """`memory:`, `file:DIR` (appended WAL files), or an object a draft: `s3://`, or `objects+` and the URL of
    blobs. Segments are in the blobs of the same URL.

    `roll_age_ms` is how long a WAL file grows: a quarter of the orphan grace at most. `logs`: the files of
    the local log in the same directory. Segments in buckets of others are read there; while one of those is
    out of reach, it is as if they were missing.
    """
    adopted = _adopted(far, is_lenient=True)
    match _split(url):
        case ("memory", ""):
            return WalAndSegments(MemorySegments(shard=shard), SegmentBlobs(MemoryBlobs()), adopted)
        case ("file", path) if path:
            wal = WalSegments(path, shard=shard, roll_age_ms=roll_age_ms)
            try:
                there = logs if logs is not None else ReplacedLogs(Path(path))
                return WalAndSegments(wal, _segments_in(url, path), adopted, logs=there)
            except BaseException:
                wal.shut()
                raise
    blobs = _blobs_of_objects(url, Access.OWNED, far)
    wal_objects, logs_there = ObjectSegments(blobs, shard=shard), LogsInBlobs(blobs)
    return WalAndSegments(wal_objects, SegmentBlobs(blobs), adopted, logs=logs_there)


def with_inline(segments: SegmentStore, journal: Journal) -> SegmentStore:
    """The same store, which also reads the batches inside of the entries of this journal, if it can have
    some. Closed with `segments`."""
    return InlineAndObjects(segments, journal.frames) if isinstance(journal, MetadataJournal) else segments


def set_inline_rule(journal: Journal, rule: InlineRule) -> None:
    """From now on this rule says which drafts travel in entries. Nothing happens where none can."""
    if isinstance(journal, MetadataJournal):
        journal.rule = rule


def open_job_segments(url: str, *, far: FarStores | None = None) -> JobSegments:
    """The segment store of a gateway for a job in another process: it reads what `open_segments` of the same
    URL has, and makes segments. It takes no lock and changes nothing else, so the gateway may run.

    UnknownStore for `memory:`, which no other process can reach. A store in a bucket is reached with the
    options of `far`, as that of the gateway is (`FarStores(FarOptions(...))`), and is not proved.
    """
    match _split(url.removeprefix(OBJECTS)):
        case ("memory", ""):
            raise UnknownStore(f"{url} is in the memory of its gateway, where no other process can read it")
        case ("file", path) if path and not os.path.isdir(os.path.join(path, BLOBS_DIRECTORY)):
            raise StoreUnavailable(f"there is no data of a gateway in {path}: name its storage.data")
        case ("file", path) if path and not url.startswith(OBJECTS):
            segments = _segments_in(url, path, JOB_DEADLINE_S)
            logs = ReadLogAndReplaced(LogFilesRead(path), ReplacedLogs(Path(path)))
            return WalAndSegmentsOfJob(WalFilesRead(path), segments, _adopted(far), logs=logs)
    blobs = _blobs_of_objects(url, Access.SHARED, far)
    wal, logs_there = ObjectSegments(blobs), LogsInBlobs(blobs)
    return WalAndSegmentsOfJob(wal, SegmentBlobs(blobs), _adopted(far), logs=logs_there)


def _adopted(far: FarStores | None, *, is_lenient: bool = False) -> AdoptedSegments:
    """Nothing is opened. These buckets are only read, so they are not proved with the gateway's own."""
    apart = FarStores(far.options if far is not None else None)
    failing = far.failing_places if far is not None else None
    return AdoptedSegments(lambda place: open_kafscale(place, far=apart), failing, is_lenient=is_lenient)


def _segments_in(url: str, path: str, deadline_s: float = DEADLINE_S) -> SegmentBlobs:
    """Segments in a local directory, which its gateway and jobs share."""
    directory = Path(path) / BLOBS_DIRECTORY
    blobs = open_blobs(url, Access.SHARED, deadline_s=deadline_s)
    return SegmentBlobs(blobs, LocalRanges(directory, deadline_s))


def _blobs_of_objects(url: str, access: Access, far: FarStores | None) -> Blobs:
    """Where WAL objects and segments are."""
    if _split(url)[0] == "s3" or url.startswith((f"{OBJECTS}memory:", f"{OBJECTS}file:")):
        try:
            return open_blobs(url.removeprefix(OBJECTS), access, far=far)
        except UnknownStore:
            if _split(url)[0] == "s3":
                raise
    raise _unknown("segment", url, SEGMENT_URLS)


def open_blobs(
    url: str,
    access: Access = Access.OWNED,
    *,
    far: FarStores | None = None,
    deadline_s: float = DEADLINE_S,
    other: str = OTHER_PLACE,
) -> Blobs:
    """`memory:`, `file:DIR`, whose parent must exist (the blobs are in `DIR/blobs`), or `s3://`.
    `deadline_s`: of a call to a local one. `other`: what may be chosen instead, for errors of its disk."""
    match _split(url):
        case ("memory", ""):
            return MemoryBlobs()
        case ("file", path) if path:
            if access is not Access.READ_ONLY:
                Directories(Path(path), other).open_root()
            return FileBlobs(os.path.join(path, BLOBS_DIRECTORY), deadline_s, access, other=other)
        case ("s3", _):
            return (far or FarStores()).blobs(url)
    raise _unknown("blob", url, BLOB_URLS)


def open_kafscale(
    url: str,
    access: Access = Access.READ_ONLY,
    *,
    far: FarStores | None = None,
    other: str = OTHER_PLACE,
) -> Blobs:
    """A bucket in KafScale's layout, `s3://`, or a copy of one: `file:DIR`, which has its keys as paths.
    Nothing of it is proved. `other`: as for `open_blobs`."""
    match _split(url):
        case ("file", path) if path:
            return FileBlobs(path, JOB_DEADLINE_S, access, other=other)
        case ("s3", _):
            return (far or FarStores()).blobs(url)
    raise _unknown("KafScale", url, KAFSCALE_URLS)


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
