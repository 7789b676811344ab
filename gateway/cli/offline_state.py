"""Opens the stores of an offline ledger, for the commands that inspect, back up or restore it."""

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from gateway.cli.output import UsageError, talk
from gateway.config import given_by_command, load_settings
from gateway.coordination.recovery import Recovered, recover
from gateway.offline.backup import ReadOnlyImage
from gateway.settings import Settings
from gateway.store_assembly import METADATA_FILE, Stores, has_log, opened_stores
from gateway.telemetry.logs import set_up_logs, warn_of_variables
from ledger.errors import StoreUnavailable
from ledger.ports import ImageStore, Journal
from ledger.state import LedgerState

T = TypeVar("T")


def settings_for(
    config: str | None,
    data_dir: str | None,
    flags: Mapping[str, object] = MappingProxyType({}),
    assignments: Sequence[str] = (),
) -> Settings:
    """The settings of `serve`, and logs of warnings and errors alone. `flags` by their settings, and
    `assignments` SECTION.KEY=VALUE."""
    named = {**flags, "storage.data_dir": data_dir}
    given = given_by_command({name: value for name, value in named.items() if value is not None}, assignments)
    settings = load_settings({**given, "log.level": "warning"}, os.environ, Path(config) if config else None)
    set_up_logs(settings.log)
    warn_of_variables(os.environ)
    return settings


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(work())


def check_there(settings: Settings) -> None:
    """UsageError unless a gateway has used the data directory before: an inspection must not create one.
    StoreUnavailable if this user may not read it."""
    directory = Path(settings.storage.data_dir)
    try:
        is_there = (
            bool(settings.storage.metadata) or has_log(directory) or (directory / METADATA_FILE).exists()
        )
    except OSError as error:
        raise StoreUnavailable(
            f"cannot read the data directory {directory}: {error.strerror}; run as {owner_of(directory)}"
        ) from error
    if not is_there:
        raise UsageError(
            f"there is no ledger in {directory}: name the data directory of a gateway with --data-dir"
        )


def owner_of(directory: Path) -> str:
    """The user that owns a data directory, in words."""
    try:
        number = directory.stat().st_uid
    except OSError:
        return "the user of its gateway, or as root"
    try:
        return f"{pwd.getpwuid(number).pw_name}, the owner"
    except KeyError:
        return f"the user with number {number}, the owner"


@asynccontextmanager
async def offline_ledger(settings: Settings) -> AsyncIterator[tuple[Stores, Journal, ImageStore | None]]:
    """The stores, the journal, and a read-only image. StoreLocked while a gateway runs, if anything of it is
    on this host; UsageError if far stores hold no ledger."""
    check_there(settings)
    async with opened_stores(settings) as stores:
        if not stores.journal.exclusive and not await _has_ledger(stores.journal):
            raise UsageError(f"there is no ledger in {stores.urls.metadata}: name another with --metadata")
        image = ReadOnlyImage(stores.image) if stores.image is not None else None
        yield stores, stores.journal, image


async def _has_ledger(journal: Journal) -> bool:
    return await journal.start() > 0 or await journal.get(0) is not None


async def recover_offline(stores: Stores, journal: Journal, image: ImageStore | None) -> Recovered:
    return await recover(journal, image, stores.blobs)


async def warn_of_writer(journal: Journal, state: LedgerState) -> None:
    """Call this at the end: a gateway on far stores is not locked out, and may have written meanwhile."""
    if not journal.exclusive and await journal.get(state.applied) is not None:
        talk(
            f"A gateway writes to this ledger: this is what it held after entry {state.applied - 1}, and "
            "objects that it deletes meanwhile seem missing."
        )
