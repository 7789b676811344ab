"""Opens the stores that the settings name, each in a wrapper that measures its calls.

The only module that imports the adapters.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.open import METADATA_FILE as METADATA_FILE
from adapters.open import (
    Access,
    FarOptions,
    FarStores,
    UnknownStore,
    open_blobs,
    open_image,
    open_journal,
    open_metadata,
    open_segments,
    urls_in,
)
from adapters.open import StoreUrls as StoreUrls
from adapters.open import directory_of as directory_of
from gateway.config import secret_of
from gateway.datadir import DATA_SETTING, DataDirectory, DirectoryLock
from gateway.host import RandomBytes, random_bytes
from gateway.settings import ConfigError, Settings, Storage
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import StoreWatch, TimedBlobs, TimedSegments, timed_metadata
from gateway.world import StoreOpener
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

OPENER: Final = StoreOpener(open_metadata, open_segments, open_blobs, open_image, open_journal)
"""The backends of this build."""
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

    @property
    def directories(self) -> Sequence[Path]:
        """Local directories that the stores write to."""
        named = (self.urls.directory, directory_of(self.urls.metadata), directory_of(self.urls.segments))
        return [found for found in named if found is not None]


def urls_of(storage: Storage) -> StoreUrls:
    return urls_in(Path(storage.data_dir), storage.metadata, storage.data, storage.image)


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


def opened_blobs(place: str, storage: Storage) -> AbstractAsyncContextManager[Blobs]:
    """The blobs of a backup, for writing: a directory, or a URL of a far store that is reached with the
    settings `storage`. Without a lock, so unfinished puts of other processes are left alone."""
    return _opened_blobs(place, storage, Access.SHARED)


def opened_source(place: str, storage: Storage) -> AbstractAsyncContextManager[Blobs]:
    """The blobs of a data directory, of a backup or of a far store, for reading: nothing in it is created or
    changed."""
    return _opened_blobs(place, storage, Access.READ_ONLY)


@asynccontextmanager
async def _opened_blobs(place: str, storage: Storage, access: Access) -> AsyncIterator[Blobs]:
    try:
        far = FarStores(_far_options(storage))
        blobs = open_blobs(place if "://" in place else f"file:{place}", access, far=far)
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
        if urls.directory is not None:
            stack.callback(DataDirectory(urls.directory).close)
        try:
            metadata = opener.metadata(urls.metadata, thorough=thorough, far=far)
            stack.push_async_callback(metadata.close)
            if metadata.exclusive:
                # If only one gateway can write the metadata, only that one may delete from the data.
                _lock_data(directory_of(urls.segments), urls.directory, stack)
            roll_age_ms = self._settings.ledger.orphan_grace_ms // 4
            segments = opener.segments(urls.segments, roll_age_ms=roll_age_ms, far=far)
            stack.push_async_callback(segments.close)
            blobs = opener.blobs(urls.blobs, far=far)
            stack.push_async_callback(blobs.close)
            image = opener.image(urls.image) if urls.image is not None else None
        except UnknownStore as error:
            raise ConfigError(str(error)) from error
        if image is not None:
            stack.push_async_callback(image.close)
        if not storage.allow_unsafe_acks:
            _check_durable(metadata, segments)
        journal = opener.journal(timed_metadata(metadata, watch), random=self._random)
        timed = TimedSegments(segments, watch), TimedBlobs(blobs, watch)
        metered = metadata if is_metered(metadata) else None
        return Stores(journal, *timed, image, watch, urls, far, metered, identity_of(metadata))


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


def _lock_data(directory: Path | None, locked: Path | None, stack: AsyncExitStack) -> None:
    if directory is None or not directory.absolute().parent.is_dir():
        return  # opening the store reports what is missing
    if locked is None or directory.resolve() != locked.resolve():
        stack.callback(DirectoryLock(directory, DATA_SETTING).close)


def _check_durable(metadata: MetadataStore, segments: SegmentStore) -> None:
    for setting, is_durable in (
        ("storage.metadata", metadata.durable_ack),
        ("storage.data", segments.capabilities.durable_ack),
    ):
        if not is_durable:
            raise ConfigError(
                f"{setting}: what this store acknowledges does not survive loss of power; "
                "to use it nevertheless set storage.allow_unsafe_acks=true"
            )
