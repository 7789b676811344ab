"""Backup and restore of one shard's metadata: everything but the record batches.

A backup is a directory of blobs in the same formats and under the same keys as those that a gateway writes
by itself: a snapshot of the state after the last entry, and an archive of the entries that the journal still
holds. The snapshot is put last, so a snapshot means a complete backup. `restore` may therefore also read
a data directory that lost its metadata store: then it is exact up to the newest automatic snapshot.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from gateway.coordination.archives import pieces, put_archive
from gateway.coordination.blob_keys import applied_of, entries_of, new_snapshot_key
from gateway.coordination.claim import Claim, put_claim
from gateway.coordination.mark import mark_keys
from gateway.coordination.recovery import Recovered, snapshot_keys
from gateway.offline.inline_restore import inline_frames, put_into_objects, seek_lost
from ledger.cluster.owners import NO_GATEWAY
from ledger.cluster.records import LedgerRestored, OwnerChanged
from ledger.errors import AlreadyExists, NotFound, StoreDamaged, StoreError, StoreTooNew, StoreUnavailable
from ledger.formats.inline import decode_value
from ledger.formats.snapshot import (
    Snapshot,
    archive_prefix,
    decode_archive,
    decode_snapshot,
    encode_snapshot,
)
from ledger.image import all_rows, restore
from ledger.journal import NONCE_BYTES, encode_entry, nonce_of
from ledger.keys import created_ms, is_adopted, is_of_job
from ledger.partitions.records import ProducerIdsReserved
from ledger.ports import Blobs, ImageStore, Journal, SegmentStore
from ledger.registry import REGISTRY, encode_record
from ledger.rows import Row
from ledger.state import LedgerState
from ledger.swaps.records import PinReleased
from ledger.swaps.state import Pins
from ledger.types import StoredObject

log = structlog.get_logger(__name__)

PAGE = 1000
SKIPPED_PRODUCER_IDS = 1_000_000_000
"""More than can have been assigned after the backup: none of those may be assigned to another producer."""


class ReadOnlyImage:
    """An ImageStore that is read if it can be, and stays as it is if it cannot."""

    def __init__(self, image: ImageStore) -> None:
        """The caller closes `image`."""
        self._image = image
        self.location = image.location

    async def load(self) -> tuple[Sequence[Row], bytes] | None:
        return await self._image.load()

    async def rows(self) -> tuple[Sequence[Row], bytes]:
        return await self._image.rows()

    async def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        return None

    async def clear(self) -> None:
        return None

    async def remove(self) -> None:
        return None

    async def close(self) -> None:
        return None


class StoreNotEmpty(StoreError):
    """A restore would write over a journal."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup, as its snapshot describes it."""

    key: str
    cluster_id: str
    entries: int
    last_entry_ms: int
    topics: int


@dataclass(frozen=True, slots=True)
class Restored:
    """`missing`: objects that the ledger names and the store does not have. `kept`: objects that no entry
    names and that may hold records acknowledged after the backup."""

    backup: Backup
    cluster_epoch: int
    skipped: list[str]
    missing: list[str]
    kept: list[str]


async def write_backup(journal: Journal, recovered: Recovered, blobs: Blobs, now_ms: int) -> Backup:
    """Put a backup of the journal's state into blobs. StoreUnavailable if that cannot be made durable, or if
    a gateway has pruned meanwhile what the state needs."""
    state, start = recovered.state, await journal.start()
    async for piece in pieces(journal, start):
        await put_archive(blobs, journal.shard, piece, now_ms)
    oldest = state.objects.first_inline_entry()
    if oldest is not None and oldest < start:
        raise StoreUnavailable(
            f"a gateway has moved the records of journal entry {oldest} and pruned it: make the backup again"
        )
    key = new_snapshot_key(journal.shard, state.applied, now_ms)
    snapshot = Snapshot(state.applied, recovered.nonce, list(all_rows(state)))
    await blobs.put(key, [encode_snapshot(snapshot)])
    return _backup(key, state)


async def newest_backup(blobs: Blobs, shard: int) -> tuple[Snapshot, str, list[str]]:
    """The newest readable snapshot, its key, and the errors of newer ones that were skipped. StoreDamaged if
    there is none; StoreTooNew if the newest is of a newer version."""
    skipped: list[str] = []
    for key in reversed(await snapshot_keys(blobs, shard)):
        try:
            return decode_snapshot(await blobs.get(key), key), key, skipped
        except (StoreDamaged, NotFound) as error:
            skipped.append(str(error))
    reasons = f" ({'; '.join(skipped)})" if skipped else ""
    raise StoreDamaged(f"there is no snapshot to restore from{reasons}: name the directory of a backup")


@dataclass(frozen=True, slots=True)
class Found:
    """What `read_backup` has read: the newest readable snapshot, and the errors of newer ones."""

    snapshot: Snapshot
    state: LedgerState
    backup: Backup
    skipped: list[str]
    last_entry: bytes | None
    inline: Mapping[str, bytes]
    """By locator, the batches that were inside of entries."""


async def read_backup(source: Blobs, shard: int = 0) -> Found:
    """StoreDamaged if there is nothing to restore from, StoreTooNew if this build cannot read it."""
    snapshot, key, skipped = await newest_backup(source, shard)
    state = restore(snapshot.rows)
    seek_lost(state)
    last_entry = await _last_entry(source, shard, snapshot)
    inline = await inline_frames(source, shard, state)
    return Found(snapshot, state, _backup(key, state), skipped, last_entry, inline)


async def restore_backup(
    found: Found,
    journal: Journal,
    blobs: Blobs,
    image: ImageStore | None,
    segments: SegmentStore,
    now_ms: int,
) -> Restored:
    """Begin an empty journal where the snapshot ends, and journal that it was restored.
    `blobs` and `segments` are those that the gateway will use. StoreNotEmpty before anything is written. What
    a failed restore has written is removed again."""
    if not await is_empty(journal):
        raise StoreNotEmpty("the metadata store holds a journal already: restore into an empty one")
    snapshot, state, key = found.snapshot, found.state, found.backup.key
    there = [each async for each in all_objects(segments)]
    stored = {each.locator: each.created_ms for each in there if not is_lone_index(each)}
    # After every snapshot and mark in the blobs: a start takes those for ones of the replaced journal.
    before = [*await snapshot_keys(blobs, journal.shard), *await mark_keys(blobs, journal.shard)]
    replaced = [created_ms(each) + 1 for each in before]
    newest_ms = max([now_ms, state.entry_time_ms, *stored.values(), *replaced])
    if image is not None:
        await image.remove()
    # Nothing below the floor could be committed after the backup, so nothing below it was acknowledged.
    record = LedgerRestored(snapshot.applied, state.objects.floor_ms, newest_ms)
    owner = OwnerChanged(state.epoch + 1, NO_GATEWAY, os.urandom(NONCE_BYTES))
    skipping = ProducerIdsReserved(state.next_producer_id + SKIPPED_PRODUCER_IDS)
    level, pins = state.feature_level, pins_released(state)
    moves = await put_into_objects(state, found.inline, segments, newest_ms)
    records = [encode_record(each, level) for each in (owner, record, skipping, *pins, *moves)]
    entry = encode_entry(owner.epoch, newest_ms, os.urandom(NONCE_BYTES), records)
    is_put = await _put_snapshot(blobs, key, snapshot)
    try:
        await journal.begin(snapshot.applied, entry, found.last_entry)
        # From here on the data is this journal's: the replaced one would be refused.
        claim = Claim(state.cluster_id, owner.epoch, snapshot.applied, nonce_of(entry))
        await put_claim(blobs, journal.shard, claim, is_restored=True)
    except BaseException:
        await _take_back(journal, snapshot.applied, blobs, key if is_put else None)
        raise
    REGISTRY.apply(state, record)
    # The objects into which batches were moved were written by this restore.
    return _restored(found, stored | {move.locator: newest_ms for move in moves})


def _restored(found: Found, stored: Mapping[str, int]) -> Restored:
    """`stored`: all objects that are there, with their creation time."""
    state, objects = found.state, found.state.objects
    live = [each.locator for each in objects.by_number.values() if not each.closed]
    missing = sorted(locator for locator in live if locator not in stored and not is_adopted(locator))
    kept = sorted(
        locator
        for locator, created in stored.items()
        if locator not in objects.by_locator and objects.keeps(created)
    )
    return Restored(found.backup, state.cluster_epoch, found.skipped, missing, kept)


def pins_released(state: LedgerState) -> list[PinReleased]:
    """For the first entry of a journal that goes on elsewhere, or from an earlier state: the plans of these
    jobs are of another ledger by now, so their swaps are refused and they begin again."""
    return [PinReleased(job) for job in state.part(Pins)]


async def is_empty(journal: Journal) -> bool:
    """Whether a journal may begin here."""
    try:
        return await journal.start() == 0 and not (await journal.read(0, 1)).entries
    except StoreDamaged:
        return False


async def _put_snapshot(blobs: Blobs, key: str, snapshot: Snapshot) -> bool:
    """False if it is there already."""
    try:
        await blobs.put(key, [encode_snapshot(snapshot)])
    except AlreadyExists:
        log.info("restore.snapshot_in_place", key=key)
        return False
    return True


async def _take_back(journal: Journal, applied: int, blobs: Blobs, snapshot: str | None) -> None:
    """As far as possible: the store may be out of reach, which the caller reports."""
    if not journal.exclusive:
        return  # The entries may be those of another process.
    with suppress(StoreError):
        await journal.discard(applied)
    with suppress(StoreError):
        await blobs.delete([snapshot] if snapshot is not None else [])


async def _last_entry(source: Blobs, shard: int, snapshot: Snapshot) -> bytes | None:
    """The entry that the snapshot ends with, if an archive has it: with it in the journal, a
    snapshot of another journal can never be taken for this one's."""
    last = snapshot.applied - 1
    async for key in _all_keys(source, archive_prefix(shard)):
        if last in entries_of(key):
            try:
                first, entries = decode_archive(await source.get(key), key)
            except StoreTooNew:
                raise
            except StoreError as error:
                log.warning("restore.archive_unreadable", key=key, error=str(error))
                continue
            if nonce_of(entries[last - first]) == snapshot.nonce:
                return decode_value(entries[last - first], key).entry
    return None


async def _all_keys(blobs: Blobs, prefix: str) -> AsyncIterator[str]:
    after = ""
    while page := await blobs.list(prefix, after, PAGE):
        for info in page:
            yield info.key
        after = page[-1].key


async def all_objects(segments: SegmentStore) -> AsyncIterator[StoredObject]:
    """Everything that a segment store holds."""
    async for page in all_pages(segments):
        for found in page:
            yield found


async def all_pages(segments: SegmentStore) -> AsyncIterator[Sequence[StoredObject]]:
    """The same, some at a time."""
    after = ""
    while page := await segments.objects(after, PAGE):
        yield page
        after = page[-1].locator


def is_lone_index(stored: StoredObject) -> bool:
    """Whether this is no object but an `.index`, or the like, that a job has left."""
    return not stored.size and is_of_job(stored.locator)


def _backup(key: str, state: LedgerState) -> Backup:
    assert applied_of(key) == state.applied
    return Backup(key, state.cluster_id, state.applied, state.entry_time_ms, len(state.topics.by_id))
