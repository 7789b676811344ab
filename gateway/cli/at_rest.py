"""Opens the stores of a ledger that no gateway uses, for the commands that look at it or put it back."""

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from gateway.assembly import METADATA_FILE, Stores, opened_stores
from gateway.cli.output import UsageError
from gateway.config import Settings, load_settings
from gateway.coordination.backup import UnchangedImage
from gateway.coordination.imagefile import ImageFile
from gateway.coordination.journal import Journal
from gateway.coordination.recovery import Recovered, recover
from gateway.telemetry.logs import set_up_logs, warn_of_variables
from ledger.errors import StoreUnavailable

T = TypeVar("T")
SHARD = 0


def settings_for(config: str | None, data_dir: str | None) -> Settings:
    """Settings as `serve` would have them, and logs that tell warnings alone."""
    flags: Mapping[str, object] = {"storage.data_dir": data_dir, "log.level": "warning"}
    given = {name: value for name, value in flags.items() if value is not None}
    settings = load_settings(given, os.environ, Path(config) if config else None)
    set_up_logs(settings.log)
    warn_of_variables(os.environ)
    return settings


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(work())


def check_there(settings: Settings) -> None:
    """UsageError unless a gateway has ever used the data directory: looking must not create one.
    StoreUnavailable if this user may not look."""
    directory = Path(settings.storage.data_dir)
    try:
        is_there = bool(settings.storage.metadata) or (directory / METADATA_FILE).exists()
    except OSError as error:
        raise StoreUnavailable(
            f"cannot look into the data directory {directory}: {error.strerror}; run as {owner_of(directory)}"
        ) from error
    if not is_there:
        raise UsageError(
            f"there is no ledger in {directory}: name the data directory of a gateway with --data-dir"
        )


def owner_of(directory: Path) -> str:
    """The user whom a data directory belongs to, in words."""
    try:
        number = directory.stat().st_uid
    except OSError:
        return "the user of its gateway, or as root"
    try:
        return f"{pwd.getpwuid(number).pw_name}, whom it belongs to"
    except KeyError:
        return f"the user with number {number}, whom it belongs to"


@asynccontextmanager
async def ledger_at_rest(settings: Settings) -> AsyncIterator[tuple[Stores, Journal, ImageFile | None]]:
    """The stores, the journal, and an image that is only read. StoreLocked while a gateway runs."""
    check_there(settings)
    async with opened_stores(settings) as stores:
        image = UnchangedImage(stores.image.path) if stores.image is not None else None
        try:
            yield stores, Journal(stores.metadata, SHARD), image
        finally:
            if image is not None:
                await image.close()


async def recovered_at_rest(stores: Stores, journal: Journal, image: ImageFile | None) -> Recovered:
    return await recover(journal, image, stores.blobs)
