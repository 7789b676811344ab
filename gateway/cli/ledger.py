"""`dragoman ledger show|backup|restore`, on a data directory that no gateway uses."""

import time
from contextlib import AsyncExitStack
from pathlib import Path

from gateway.assembly import METADATA_FILE, Stores, opened_blobs, opened_source, opened_stores
from gateway.cli.at_rest import ledger_at_rest, recovered_at_rest, run, settings_for
from gateway.cli.exits import Exit
from gateway.cli.output import UsageError, print_json, print_table, print_text, shown_time, talk
from gateway.cli.ownership import hand_over
from gateway.config import Settings
from gateway.coordination.backup import (
    Backup,
    Restored,
    StoreNotEmpty,
    read_backup,
    restore_backup,
    write_backup,
)
from gateway.coordination.recovery import applied_of, snapshot_keys
from gateway.coordination.survey import Survey, survey
from ledger.errors import StoreDamaged

SHOWN_OBJECTS = 10


def show(config: str | None, data_dir: str | None, as_json: bool) -> Exit:
    """Print what the ledger holds."""
    settings = settings_for(config, data_dir)
    found = run(lambda: _survey(settings))
    if as_json:
        print_json(found)
    else:
        _print_survey(found)
    return Exit.OK


async def _survey(settings: Settings) -> Survey:
    async with ledger_at_rest(settings) as (stores, journal, image):
        recovered = await recovered_at_rest(stores, journal, image)
        return await survey(journal, recovered, stores.blobs, stores.segments)


def _print_survey(found: Survey) -> None:
    journal, objects = found.journal, found.objects
    print_table(
        ("cluster", found.cluster_id),
        [
            ("cluster epoch", journal.cluster_epoch),
            ("journal entries", f"{journal.start} to {journal.end - 1}"),
            ("last entry", _when(journal.last_entry_ms)),
            ("owner epoch", journal.epoch),
            ("read from", journal.recovered_from),
            ("snapshots", len(journal.snapshots)),
            ("live objects", f"{objects.live}, {objects.live_bytes} bytes"),
            ("garbage", f"{objects.garbage}, {objects.garbage_bytes} bytes"),
            ("orphans", f"{len(objects.orphans)}, of which {len(objects.kept)} are kept for ever"),
            ("orphan floor", _when(objects.floor_ms)),
            (
                "groups",
                f"{len(found.groups)}, {sum(group.committed_offsets for group in found.groups)} offsets",
            ),
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


def backup(config: str | None, data_dir: str | None, to: str, as_json: bool) -> Exit:
    """Write a backup and say how far it reaches."""
    settings = settings_for(config, data_dir)
    if Path(to).resolve() == Path(settings.storage.data_dir).resolve():
        raise UsageError("--to is the data directory itself: name another, best on another disk")
    made = run(lambda: _backup(settings, Path(to)))
    if as_json:
        print_json(made)
    talk(
        f"Backed up {made.entries} journal entries ({made.topics} topics), the last of "
        f"{shown_time(made.last_entry_ms)}, to {to}. Record batches are not in it: copy the data as well."
    )
    return Exit.OK


async def _backup(settings: Settings, to: Path) -> Backup:
    async with ledger_at_rest(settings) as (stores, journal, image):
        recovered = await recovered_at_rest(stores, journal, image)
        async with opened_blobs(to) as blobs:
            return await write_backup(journal, recovered, blobs, _now_ms())


def restore(config: str | None, data_dir: str | None, source: str, as_json: bool) -> Exit:
    """Put the metadata back from a backup and say what that means. FINDINGS if objects are missing."""
    settings = settings_for(config, data_dir)
    if not Path(source).is_dir():
        raise UsageError(f"there is no directory {source}: name that of a backup with --from")
    try:
        done, newer = run(lambda: _restore(settings, Path(source)))
    except StoreNotEmpty:
        raise UsageError(f"{_metadata_of(settings)} holds a ledger: {_NEVER_OVER}") from None
    finally:
        hand_over(settings.storage)
    if as_json:
        print_json(done)
    _tell_restored(done, newer, settings)
    return Exit.FINDINGS if done.missing else Exit.OK


_NEVER_OVER = "a restore never writes over a ledger; move it (and its -wal and -shm) away first"


def _metadata_of(settings: Settings) -> str:
    return settings.storage.metadata or str(Path(settings.storage.data_dir) / METADATA_FILE)


async def _restore(settings: Settings, source: Path) -> tuple[Restored, int]:
    """What was restored, and how many entries the newest snapshot in the data directory holds."""
    async with opened_source(source) as blobs:
        # Before anything is made in the data directory.
        found = await read_backup(blobs)
    async with AsyncExitStack() as stack:
        stores = await _opened_for_restore(settings, stack)
        own = await snapshot_keys(stores.blobs, 0)
        newest = applied_of(own[-1]) if own else 0
        done = await restore_backup(
            found, stores.metadata, stores.blobs, stores.image, stores.segments, _now_ms()
        )
        return done, newest


async def _opened_for_restore(settings: Settings, stack: AsyncExitStack) -> Stores:
    try:
        return await stack.enter_async_context(opened_stores(settings))
    except StoreDamaged as error:
        # What is damaged may be all that there is of later records.
        raise UsageError(f"{_metadata_of(settings)} cannot be opened ({error}): {_NEVER_OVER}") from error


def _tell_restored(done: Restored, newest: int, settings: Settings) -> None:
    made = done.backup
    for reason in done.skipped:
        talk(f"Passed over a damaged snapshot: {reason}")
    talk(
        f"Restored {made.entries} journal entries ({made.topics} topics), the last of "
        f"{shown_time(made.last_entry_ms)}. This begins cluster epoch {done.cluster_epoch}: what was "
        "acknowledged later has no offsets any more."
    )
    if newest > made.entries:
        talk(
            f"The data directory itself holds a snapshot of {newest} entries; if it is of the same ledger, "
            f"start anew with --from {settings.storage.data_dir} to get more back."
        )
    _tell_objects("objects of later records are stored; they are kept for ever", done.kept)
    _tell_objects("objects that the ledger names are not stored: their offsets cannot be read", done.missing)


def _tell_objects(what: str, locators: list[str]) -> None:
    if locators:
        more = f" and {len(locators) - SHOWN_OBJECTS} more" if len(locators) > SHOWN_OBJECTS else ""
        talk(f"{len(locators)} {what}: {', '.join(locators[:SHOWN_OBJECTS])}{more}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
