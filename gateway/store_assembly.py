"""Opens the stores that the settings name, each in a wrapper that measures its calls.

The only module that imports the adapters.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from adapters.open import LOG_DIRECTORY as LOG_DIRECTORY
from adapters.open import (
    MEMORY,
    OTHER_PLACE,
    Access,
    FarOptions,
    FarStores,
    UnknownStore,
    log_url_in,
    open_blobs,
    open_image,
    open_journal,
    open_log,
    open_metadata,
    open_segments,
    urls_in,
    with_inline,
)
from adapters.open import METADATA_FILE as METADATA_FILE
from adapters.open import REPLACED_DIRECTORY as REPLACED_DIRECTORY
from adapters.open import StoreUrls as StoreUrls
from adapters.open import directory_of as directory_of
from adapters.open import log_directory_of as log_directory_of
from adapters.open import set_inline_rule as set_inline_rule
from gateway.config import secret_of
from gateway.coordination.cluster_id import cluster_id_bytes
from gateway.datadir import (
    DATA_SETTING,
    FORMAT_FILE,
    LOCK_FILE,
    LOG_SETTING,
    VERSION_WITH_LOG,
    DataDirectory,
    DirectoryLock,
    check_format,
    format_of,
)
from gateway.host import RandomBytes, random_bytes
from gateway.settings import ConfigError, Settings, Storage
from gateway.telemetry.journal import TimedJournal
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import StoreWatch, TimedBlobs, TimedSegments, timed_metadata
from gateway.world import StoreOpener
from ledger.errors import StoreError, StoreUnavailable
from ledger.ports import (
    Blobs,
    ImageStore,
    Journal,
    MetadataStore,
    MeteredStore,
    SegmentStore,
    identity_of,
    is_metered,
)
from ledger.records import LEVEL_WITH_PLACED

log = structlog.get_logger()

OPENER: Final = StoreOpener(open_metadata, open_segments, open_blobs, open_image, open_journal, open_log)
"""The backends of this build."""
INLINE_BYTES: Final = 16 * 1024
"""etcd takes a third of the entries of 72 KiB that it takes of 200 bytes, and keeps each in its history."""
S3_INLINE_BYTES: Final = 256 * 1024
_PATH_STYLE: Final[Mapping[str, bool | None]] = {"auto": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Stores:
    journal: Journal
    segments: SegmentStore
    blobs: Blobs
    image: ImageStore | None
    watch: StoreWatch
    urls: StoreUrls
    far: FarStores
    """Those of them that are elsewhere."""
    metered: MeteredStore | None
    """The metadata store, if it has a quota."""
    identity: str
    """Of the metadata store, where it tells itself from a restored copy; else empty."""
    ahead_bytes: Callable[[], int] = lambda: 0
    """Of files made ahead for the journal, on the disk that it is on: they count as free."""

    @property
    def directories(self) -> Sequence[Path]:
        """Local directories that the stores write to."""
        named = (self.urls.directory, directory_of(self.urls.metadata), directory_of(self.urls.segments))
        return [found for found in named if found is not None]


def urls_of(storage: Storage) -> StoreUrls:
    """Where the stores are. A data directory says where its journal is, if no setting does; a new one has it
    in its local log."""
    directory = Path(storage.data_dir)
    metadata = storage.metadata
    if not metadata and (has_log(directory) or _is_new(directory)):
        metadata = log_url_in(directory)
    return urls_in(directory, metadata, storage.data, storage.image)


def has_log(directory: Path) -> bool:
    """Whether the journal of a data directory is in a local log, or will be: its format says so."""
    try:
        return (format_of(directory) or 0) >= VERSION_WITH_LOG
    except StoreError:
        return False  # opening the directory reports the reason


def _is_new(directory: Path) -> bool:
    """Whether no gateway has used a directory."""
    try:
        return format_of(directory) is None and not (directory / METADATA_FILE).exists()
    except (OSError, StoreError):
        return False  # opening the directory reports the reason


def is_of_gateway(directory: Path) -> bool:
    """Whether a gateway has stores in a directory. A log alone says nothing: operators copy the records of a
    backup next to it."""
    try:
        return any((directory / name).exists() for name in (FORMAT_FILE, LOCK_FILE, METADATA_FILE))
    except OSError:
        return False  # opening the directory reports the reason


def let_go_on_in_log(storage: Storage, feature_level: int) -> None:
    """Where no setting says where the journal is, the next start has that of a directory of format 1 in its
    local log. Nothing happens below the feature level that has batches next to entries: until an operator
    raises it, older versions can take the directory over again (docs/decisions/0066)."""
    directory = Path(storage.data_dir)
    if storage.metadata or feature_level < LEVEL_WITH_PLACED or has_log(directory):
        return
    try:
        check_format(directory, VERSION_WITH_LOG)
    except StoreUnavailable as error:
        # A disk may be full. The next start tries again.
        log.warning("journal.stays_in_sqlite", reason=str(error))
    else:
        log.info("journal.goes_on_in_log", directory=str(directory), when="at the next start")


def data_url_of(urls: StoreUrls) -> str:
    """The URL of the record data for another process, whose working directory may be another one."""
    scheme, _, path = urls.segments.partition(":")
    directory = directory_of(urls.segments)
    return urls.segments if directory is None else f"{scheme}:{Path(path).absolute()}"


def settings_of(urls: StoreUrls) -> Mapping[str, str]:
    """By store: the setting that says where it is, with its value, which holds no secret."""
    data = f"storage.data = {urls.segments}"
    return {"metadata": f"storage.metadata = {urls.metadata}", "segments": data, "blobs": data}


@asynccontextmanager
async def opened_stores(
    settings: Settings, *, thorough: bool = False, prove: bool = False
) -> AsyncIterator[Stores]:
    """The stores alone, with the data directory locked, for commands on an offline ledger. A gateway on far
    stores is not locked out. `thorough`: after a check of the metadata store's structure. `prove`: after the
    proof that far stores keep their promises, which writes to them.

    Raises ConfigError and the StoreErrors of `ledger.errors`: StoreLocked while a gateway runs.
    """
    async with AsyncExitStack() as stack:
        opening = StoreOpening(settings, OPENER, random_bytes)
        stores = await opening.open(stack, Metrics(), thorough=thorough)
        if prove:
            await opening.far.prove()
            await opening.far.prove_uploads()
        yield stores


def opened_blobs(
    place: str, storage: Storage, other: str = OTHER_PLACE
) -> AbstractAsyncContextManager[Blobs]:
    """The blobs of a backup, for writing: a directory, or a URL of a far store that is reached with the
    settings `storage`. Without a lock, so unfinished puts of other processes are left alone. `other`: what
    may be chosen instead, for errors of a disk."""
    return _opened_blobs(place, storage, Access.SHARED, other)


def opened_source(
    place: str, storage: Storage, other: str = OTHER_PLACE
) -> AbstractAsyncContextManager[Blobs]:
    """The blobs of a data directory, of a backup or of a far store, for reading: nothing in it is created or
    changed. `other`: as for `opened_blobs`."""
    return _opened_blobs(place, storage, Access.READ_ONLY, other)


@asynccontextmanager
async def _opened_blobs(place: str, storage: Storage, access: Access, other: str) -> AsyncIterator[Blobs]:
    try:
        far = FarStores(_far_options(storage))
        blobs = open_blobs(place if "://" in place else f"file:{place}", access, far=far, other=other)
    except UnknownStore as error:
        raise ConfigError(str(error)) from error
    try:
        yield blobs
    finally:
        await blobs.close()


class StoreOpening:
    """The stores of one gateway, from their URLs."""

    def __init__(self, settings: Settings, opener: StoreOpener, random: RandomBytes) -> None:
        """Raises ConfigError."""
        self._settings = settings
        self._opener = opener
        self._random = random
        self.far = FarStores(_far_options(settings.storage))

    async def open(self, stack: AsyncExitStack, metrics: Metrics, *, thorough: bool = False) -> Stores:
        """Whatever is opened is closed by `stack`."""
        storage, opener, far = self._settings.storage, self._opener, self.far
        urls = urls_of(storage)
        watch = StoreWatch(metrics, settings_of(urls))
        _lock_directories(urls, stack)
        try:
            log_at = log_directory_of(urls.metadata)
            if log_at is not None:
                opened = await self._open_log(log_at, urls, stack, watch, thorough=thorough)
            else:
                opened = await self._open_metadata(urls, stack, watch, thorough=thorough)
            image = opener.image(urls.image) if urls.image is not None else None
        except UnknownStore as error:
            raise ConfigError(str(error)) from error
        if image is not None:
            stack.push_async_callback(image.close)
        if not storage.allow_unsafe_acks:
            _check_durable(opened.metadata, opened.segments)
        timed = TimedSegments(opened.segments, watch), TimedBlobs(opened.blobs, watch)
        metadata = opened.metadata
        metered = metadata if metadata is not None and is_metered(metadata) else None
        identity = identity_of(metadata) if metadata is not None else ""
        return Stores(opened.journal, *timed, image, watch, urls, far, metered, identity, opened.ahead_bytes)

    async def _open_metadata(
        self, urls: StoreUrls, stack: AsyncExitStack, watch: StoreWatch, *, thorough: bool
    ) -> "_Opened":
        """The stores, with the journal in a metadata store."""
        opener, far = self._opener, self.far
        _check_no_log(urls.metadata)
        metadata = opener.metadata(urls.metadata, thorough=thorough, far=far)
        stack.push_async_callback(metadata.close)
        if metadata.exclusive:
            # If only one gateway can write the metadata, only that one may delete from the data.
            _lock_data(urls, stack)
        segments = opener.segments(urls.segments, roll_age_ms=self._roll_age_ms, far=far)
        stack.push_async_callback(segments.close)
        blobs = opener.blobs(urls.blobs, far=far)
        stack.push_async_callback(blobs.close)
        journal = opener.journal(timed_metadata(metadata, watch), random=self._random)
        return _Opened(metadata, journal, with_inline(segments, journal), blobs)

    async def _open_log(
        self, log_at: Path, urls: StoreUrls, stack: AsyncExitStack, watch: StoreWatch, *, thorough: bool
    ) -> "_Opened":
        """The stores, with the journal in a local log."""
        opener, far = self._opener, self.far
        if opener.log is None:
            raise UnknownStore(f"this world has no local log for {urls.metadata}")
        _lock_data(urls, stack)
        blobs = opener.blobs(urls.blobs, far=far)
        stack.push_async_callback(blobs.close)
        records_at = directory_of(urls.segments) if urls.segments.startswith("file:") else None
        takes_batches = records_at is not None and records_at.resolve() == log_at.resolve()
        opened = await opener.log(
            log_at,
            cluster_id=await cluster_id_bytes(blobs),
            takes_batches=takes_batches,
            thorough=thorough,
            random=self._random,
        )
        stack.push_async_callback(opened.close)
        logs = {"logs": opened.files} if takes_batches else {}
        segments = opener.segments(urls.segments, roll_age_ms=self._roll_age_ms, far=far, **logs)
        segments = opened.with_older_batches(segments)
        stack.push_async_callback(segments.close)
        journal = TimedJournal(opened.journal, watch)
        # Records that go elsewhere cannot use what was made ahead.
        return _Opened(None, journal, segments, blobs, lambda: opened.ahead_bytes if takes_batches else 0)

    @property
    def _roll_age_ms(self) -> int:
        return self._settings.ledger.orphan_grace_ms // 4


@dataclass(frozen=True, slots=True)
class _Opened:
    """`metadata` None: the journal is in a local log."""

    metadata: MetadataStore | None
    journal: Journal
    segments: SegmentStore
    blobs: Blobs
    ahead_bytes: Callable[[], int] = lambda: 0


def inline_bytes_of(urls: StoreUrls, storage: Storage) -> int:
    """The largest draft that travels in a journal entry; 0: none does. On this host none does unless that is
    set: an entry is written into a file too."""
    if storage.inline_bytes >= 0:
        return storage.inline_bytes
    if directory_of(urls.metadata) is not None or urls.metadata == MEMORY:
        return 0
    return S3_INLINE_BYTES if urls.metadata.startswith("s3:") else INLINE_BYTES


def _far_options(storage: Storage) -> FarOptions:
    return FarOptions(
        etcd_user=storage.etcd_user,
        etcd_password=_etcd_password(storage),
        etcd_ca=storage.etcd_ca,
        etcd_certificate=storage.etcd_certificate,
        etcd_key=storage.etcd_key,
        filer_ca=storage.filer_ca,
        filer_certificate=storage.filer_certificate,
        filer_key=storage.filer_key,
        s3_ca=storage.s3_ca,
        s3_path_style=_PATH_STYLE[storage.s3_path_style],
        s3_kms_key=storage.s3_kms_key,
    )


def _etcd_password(storage: Storage) -> str:
    name = "storage.etcd_password_file"
    try:
        return secret_of(storage.etcd_password, storage.etcd_password_file, name).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name} = {storage.etcd_password_file}: the password is not UTF-8") from None


def _lock_directories(urls: StoreUrls, stack: AsyncExitStack) -> None:
    """The data directory, and that of the log if it is another one."""
    log_at, directory = log_directory_of(urls.metadata), urls.directory
    if directory is not None:
        has_log = log_at is not None and log_at.resolve() == directory.resolve()
        stack.callback(DataDirectory(directory, has_log=has_log).close)
    if log_at is not None and (directory is None or log_at.resolve() != directory.resolve()):
        stack.callback(DataDirectory(log_at, has_log=True, setting=LOG_SETTING).close)


def _lock_data(urls: StoreUrls, stack: AsyncExitStack) -> None:
    """The directory of the records, if it is not locked already."""
    directory = directory_of(urls.segments)
    if directory is None or not directory.absolute().parent.is_dir():
        return  # opening the store reports what is missing
    locked = [found for found in (urls.directory, log_directory_of(urls.metadata)) if found is not None]
    if directory.resolve() not in [found.resolve() for found in locked]:
        stack.callback(DirectoryLock(directory, DATA_SETTING).close)


def _check_no_log(metadata: str) -> None:
    """StoreUnavailable for the file of a journal that goes on in the log next to it."""
    at = directory_of(metadata)
    if at is None or not metadata.endswith(f"/{METADATA_FILE}"):
        return
    if has_log(at) and (at / LOG_DIRECTORY).exists():
        raise StoreUnavailable(
            f"the journal of {at} is in its local log: leave --metadata out, or name --metadata file:{at}"
        )


def _check_durable(metadata: MetadataStore | None, segments: SegmentStore) -> None:
    for setting, is_durable in (
        ("storage.metadata", metadata is None or metadata.durable_ack),
        ("storage.data", segments.capabilities.durable_ack),
    ):
        if not is_durable:
            raise ConfigError(
                f"{setting}: what this store acknowledges does not survive loss of power; "
                "to use it nevertheless set storage.allow_unsafe_acks=true"
            )
