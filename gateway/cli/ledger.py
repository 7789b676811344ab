"""`dragoman ledger show|backup|restore`, on the stores of a gateway that does not run."""

import time
from contextlib import AsyncExitStack
from pathlib import Path

from gateway.cli.exits import Exit
from gateway.cli.ledger_snapshot import OTHER_TARGET, online_backup
from gateway.cli.offline_state import offline_ledger, recover_offline, run, warn_of_writer
from gateway.cli.output import UsageError, counted, print_json, print_table, print_text, shown_time, talk
from gateway.cli.ownership import hand_over
from gateway.coordination.blob_keys import applied_of
from gateway.coordination.claim import is_claimed
from gateway.coordination.recovery import snapshot_keys
from gateway.offline.backup import (
    Backup,
    Restored,
    StoreNotEmpty,
    read_backup,
    restore_backup,
)
from gateway.offline.held_backup import BackupPlaces, HeldBackup, write_held_backup
from gateway.offline.inspect import Inspection, inspect_ledger
from gateway.offline.ledger_objects import LedgerObjects
from gateway.settings import Settings
from gateway.store_assembly import (
    METADATA_FILE,
    REPLACED_DIRECTORY,
    Stores,
    StoreUrls,
    directory_of,
    is_of_gateway,
    log_directory_of,
    opened_blobs,
    opened_source,
    opened_stores,
    urls_of,
)
from ledger.errors import StoreDamaged, StoreLocked

SHARD = 0
SHOWN_OBJECTS = 10
HOUR_MS = 3_600_000
HOLD_HOURS = 48
OTHER_SOURCE = "another place with --from"


def show(settings: Settings, as_json: bool) -> Exit:
    """Print what the ledger holds."""
    found = run(lambda: _inspect_ledger(settings))
    if as_json:
        print_json(found)
    else:
        _print_inspection(found)
    return Exit.OK


async def _inspect_ledger(settings: Settings) -> Inspection:
    async with offline_ledger(settings) as (stores, journal, image):
        recovered = await recover_offline(stores, journal, image)
        objects = LedgerObjects(stores.segments, journal, recovered.state)
        found = await inspect_ledger(journal, recovered, stores.blobs, objects)
        await warn_of_writer(journal, recovered.state)
        return found


def _print_inspection(found: Inspection) -> None:
    journal, objects = found.journal, found.objects
    offsets = sum(group.committed_offsets for group in found.groups)
    print_table(
        ("cluster", found.cluster_id),
        [
            ("cluster epoch", journal.cluster_epoch),
            ("feature level", found.feature_level),
            ("journal entries", f"{journal.start} to {journal.end - 1}"),
            ("last entry", _when(journal.last_entry_ms)),
            ("owner epoch", journal.epoch),
            ("read from", journal.recovered_from),
            ("snapshots", len(journal.snapshots)),
            ("live objects", f"{objects.live}, {counted(objects.live_bytes, 'byte')}"),
            ("garbage", f"{objects.garbage}, {counted(objects.garbage_bytes, 'byte')}"),
            ("orphans", f"{len(objects.orphans)}, of which kept for ever: {len(objects.kept)}"),
            *(
                ("adopted", f"{place}, {counted(size, 'byte')} still read there")
                for place, size in objects.adopted_bytes.items()
            ),
            ("orphan floor", _when(objects.floor_ms)),
            ("groups", f"{len(found.groups)}, {counted(offsets, 'offset')}"),
            ("client quotas", len(found.quotas)),
            ("configs of brokers and groups", len(found.configs)),
        ],
    )
    rows = [
        (topic.name, part.partition, part.log_start_offset, part.high_watermark, part.runs, part.size_bytes)
        for topic in found.topics
        for part in topic.partitions
    ]
    print_text()
    print_table(("topic", "partition", "log start", "high watermark", "runs", "bytes"), rows)


def _when(unix_ms: int) -> str:
    return shown_time(unix_ms) if unix_ms > 0 else "never"


def backup(settings: Settings, to: str, as_json: bool, hold_hours: int = HOLD_HOURS) -> Exit:
    """Write a backup and print its last entry, and until when its objects stay. A gateway that uses the data
    directory makes the snapshot for it."""
    run(lambda: _check_target(settings, to))
    hold_ms = hold_hours * HOUR_MS
    try:
        made = run(lambda: _backup(settings, to, hold_ms))
    except StoreLocked:
        made = online_backup(settings, to, hold_ms)
        talk("A gateway uses the data directory, and has made the snapshot.")
    if as_json:
        print_json(made)
    talk(
        f"Backed up {_reach(made)}, the last of "
        f"{shown_time(made.last_entry_ms)}, to {to}. Record batches are not in it: copy the data as well."
    )
    if made.hold:
        talk(
            f"A gateway keeps the objects that it names until {shown_time(made.held_until_ms)}, or until you "
            f"release hold {made.hold} (dragoman ledger holds)."
        )
    return Exit.OK


async def _check_target(settings: Settings, to: str) -> None:
    """UsageError for the data of a gateway, this or another one: its next start would compare its journal
    with the snapshot of this ledger. StoreError if that cannot be found out."""
    urls = urls_of(settings.storage)
    directory = directory_of(to) if "://" in to else Path(to)
    if to == urls.blobs:
        raise UsageError("--to is where the data is: name another place")
    if directory is not None and directory.resolve() in {
        Path(settings.storage.data_dir).resolve(),
        _data_of(urls),
    }:
        raise UsageError("--to is the data directory itself: name another, best on another disk")
    is_used = directory is not None and is_of_gateway(directory)
    if not is_used:
        async with opened_source(to, settings.storage, OTHER_TARGET) as blobs:
            is_used = await is_claimed(blobs, SHARD)
    if is_used:
        raise UsageError(
            f"--to {to} has the data of a gateway, which may not start beside a backup of another ledger: "
            "name an empty place, or that of earlier backups"
        )


async def _backup(settings: Settings, to: str, hold_ms: int) -> HeldBackup:
    async with offline_ledger(settings) as (stores, journal, image):
        async with opened_blobs(to, settings.storage, OTHER_TARGET) as target:
            places = BackupPlaces(stores.blobs, target, to)
            made, recovered = await write_held_backup(journal, image, places, hold_ms, _now_ms)
        await warn_of_writer(journal, recovered.state)
        return made


def _data_of(urls: StoreUrls) -> Path | None:
    directory = directory_of(urls.blobs)
    return directory.resolve() if directory is not None else None


def restore(settings: Settings, source: str, as_json: bool) -> Exit:
    """Restore the metadata from a backup and print what was lost. FINDINGS if objects are missing."""
    if "://" not in source and not Path(source).is_dir():
        raise UsageError(f"there is no directory {source}: name that of a backup with --from")
    try:
        done, newer = run(lambda: _restore(settings, source))
    except StoreNotEmpty:
        raise UsageError(f"{_metadata_of(settings)} holds a ledger: {_never_over(settings)}") from None
    finally:
        hand_over(settings.storage)
    if as_json:
        print_json(done)
    _print_restored(done, newer, settings)
    return Exit.FINDINGS if done.missing else Exit.OK


def _never_over(settings: Settings) -> str:
    metadata = urls_of(settings.storage).metadata
    log_at = log_directory_of(metadata)
    if log_at is not None:
        older = log_at / METADATA_FILE
        source, target = log_at / "log", log_at / REPLACED_DIRECTORY / "log"
        what = (
            f"the files in {source / '0'} to {target / '0'}" if target.exists() else f"{source} to {target}"
        )
        moved = f"{what}, where its records stay readable"
        remedy = f"move {moved}{f', and {older} away' if older.exists() else ''}, first"
    elif directory_of(metadata) is not None:
        remedy = "move it (and its -wal and -shm) away first"
    else:
        remedy = "give it another place (--metadata)"
    return f"a restore never writes over a ledger; {remedy}"


def _metadata_of(settings: Settings) -> str:
    metadata = urls_of(settings.storage).metadata
    log_at = log_directory_of(metadata)
    if log_at is not None:
        return str(log_at / "log")
    return settings.storage.metadata or str(Path(settings.storage.data_dir) / METADATA_FILE)


async def _restore(settings: Settings, source: str) -> tuple[Restored, int]:
    """Returns what was restored, and the number of entries in the newest snapshot of the data directory."""
    async with opened_source(source, settings.storage, OTHER_SOURCE) as blobs:
        # Before anything is created in the data directory.
        found = await read_backup(blobs)
    async with AsyncExitStack() as stack:
        stores = await _opened_for_restore(settings, stack)
        own = await snapshot_keys(stores.blobs, SHARD)
        newest = applied_of(own[-1]) if own else 0
        done = await restore_backup(
            found, stores.journal, stores.blobs, stores.image, stores.segments, _now_ms()
        )
        return done, newest


async def _opened_for_restore(settings: Settings, stack: AsyncExitStack) -> Stores:
    try:
        # A store that breaks a promise is refused here as at the start of a gateway.
        return await stack.enter_async_context(opened_stores(settings, prove=True))
    except StoreDamaged as error:
        # The damaged store may be all that is left of later records.
        raise UsageError(
            f"{_metadata_of(settings)} cannot be opened ({error}): {_never_over(settings)}"
        ) from error


def _print_restored(done: Restored, newest: int, settings: Settings) -> None:
    made = done.backup
    for reason in done.skipped:
        talk(f"Skipped a damaged snapshot: {reason}")
    talk(
        f"Restored {_reach(made)}, the last of "
        f"{shown_time(made.last_entry_ms)}. This begins cluster epoch {done.cluster_epoch}: what was "
        "acknowledged later has no offsets any more."
    )
    if newest > made.entries:
        talk(
            f"The data itself holds a snapshot of {counted(newest, 'entry', 'entries')}; if it is of the "
            f"same ledger, restore again with --from {urls_of(settings.storage).blobs.removeprefix('file:')} "
            "to get more back."
        )
    _print_objects(
        "object of later records is stored; it is kept for ever",
        "objects of later records are stored; they are kept for ever",
        done.kept,
    )
    _print_objects(
        "object that the ledger names is not stored: its offsets cannot be read",
        "objects that the ledger names are not stored: their offsets cannot be read",
        done.missing,
    )


def _reach(made: Backup | HeldBackup) -> str:
    """How much is in a backup."""
    return f"{counted(made.entries, 'journal entry', 'journal entries')} ({counted(made.topics, 'topic')})"


def _print_objects(one: str, several: str, locators: list[str]) -> None:
    if locators:
        more = f" and {len(locators) - SHOWN_OBJECTS} more" if len(locators) > SHOWN_OBJECTS else ""
        talk(f"{counted(len(locators), one, several)}: {', '.join(locators[:SHOWN_OBJECTS])}{more}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
