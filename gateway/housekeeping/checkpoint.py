"""Image, snapshots, archive and pruning of one shard's journal.

In this order, so that the process may die at any step: image, snapshot in the blobs, archive in the blobs,
`start` raised, entries deleted. A restart begins from the newest of them.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from gateway.coordination.blob_keys import ARCHIVE_BYTES, applied_of, new_archive_key, new_snapshot_key
from gateway.coordination.journal import Journal, StoredEntry, encode_start
from gateway.coordination.recovery import KEPT_SNAPSHOTS, own_snapshots
from gateway.coordination.shard import Shard
from ledger.cluster.records import OwnerChanged
from ledger.errors import StoreError
from ledger.formats.snapshot import Snapshot, encode_archive, encode_snapshot
from ledger.image import all_rows, drop_dirty, everything, put_back_dirty, restore, take_dirty
from ledger.journal import NONCE_BYTES, decode_entry, entry_key, start_key
from ledger.partitions.rows import PartitionCopy
from ledger.ports import Blobs, ImageStore, Won
from ledger.rows import Row

log = structlog.get_logger(__name__)

DELETE_ENTRIES = 500
ENCODE_S = 0.002
PAUSE_S = 0.004
"""Rows are encoded for ENCODE_S at a time, with pauses of PAUSE_S for other tasks."""
LAST_IMAGE_S = 30.0


class StateNotWhole(Exception):
    """The state is not that of any entry."""


@dataclass(slots=True)
class SnapshotRule:
    """When the next snapshot is due: journal bytes since the last, or a number of entries, which a restart
    can still count."""

    journal_bytes: int
    entries: int = 200_000
    last_applied: int = 0
    last_journal_bytes: int = 0
    last_size: int = 0

    def is_due(self, applied: int, journal_bytes: int) -> bool:
        grown = journal_bytes - self.last_journal_bytes
        return grown >= max(self.journal_bytes, self.last_size) or applied - self.last_applied >= self.entries


class Checkpointer:
    """Copies the state into the image and snapshots, and prunes the journal."""

    def __init__(
        self,
        shard: Shard,
        image: ImageStore | None,
        blobs: Blobs,
        rule: SnapshotRule,
        clock: Callable[[], int],
    ) -> None:
        self._shard = shard
        self._journal: Journal = shard.journal
        self._image = image
        self._blobs = blobs
        self._rule = rule
        self._clock = clock
        self._imaged = -1
        self.snapshot_bytes = 0
        """The size of the newest snapshot."""
        self._writing = asyncio.Lock()

    @property
    def imaged(self) -> int | None:
        """Entries in the image; None before this process has written it."""
        return self._imaged if self._imaged >= 0 else None

    @property
    def snapshotted(self) -> int:
        """Entries in the newest snapshot."""
        return self._rule.last_applied

    async def start(self) -> None:
        """Find the newest snapshot."""
        keys = await self._own_snapshots()
        self._rule.last_applied = applied_of(keys[-1]) if keys else 0
        self.snapshot_bytes = sum(info.size for info in await self._blobs.list(keys[-1])) if keys else 0

    async def write_image(self) -> None:
        """Bring the image up to the last applied entry. A failure is logged: the journal has it all."""
        # In the order in which rows are taken, or else the image would go back to an older entry.
        async with self._writing:
            await self._write_image()

    async def write_last_image(self) -> None:
        """The same at the end of the process, which must not wait for a disk that hangs."""
        try:
            async with asyncio.timeout(LAST_IMAGE_S):
                await self.write_image()
        except TimeoutError:
            log.warning("image.not_written", error=f"the disk did not take it within {LAST_IMAGE_S:g} s")

    async def _write_image(self) -> None:
        applied = self._shard.state.applied
        if self._image is None:
            drop_dirty(self._shard.state)
            return
        if applied == self._imaged:
            return
        if not self._shard.state.is_whole:
            log.error("image.state_not_whole", entries=applied)
            return
        # Of one entry, the last: from here on other tasks may run.
        (rows, copies), nonce = take_dirty(self._shard.state), self._shard.last_nonce
        try:
            await self._image.write(rows + await _encoded(copies), nonce)
            self._imaged = applied
        except BaseException as error:
            # Also when cancelled: the thread may still write them or fail to, and twice does no harm.
            put_back_dirty(self._shard.state, rows, copies)
            if not isinstance(error, StoreError):
                raise
            log.warning("image.not_written", path=self._image.location, error=str(error))

    async def snapshot_if_due(self) -> None:
        if self._rule.is_due(self._shard.state.applied, self._shard.journal_bytes):
            await self.snapshot()
            await self.prune()

    async def snapshot(self) -> str:
        """Put the state into the blobs. Returns the key. StateNotWhole once an entry was applied by half."""
        self._check_whole()
        journal_bytes = self._shard.journal_bytes
        snapshot = await self._frozen()
        data = await asyncio.to_thread(encode_snapshot, snapshot)
        # Never before a restore that is in it: a restart recognises by this which snapshots it replaced.
        now_ms = max(self._clock(), self._shard.state.entry_time_ms)
        key = new_snapshot_key(self._journal.shard, snapshot.applied, now_ms)
        await self._blobs.put(key, [data])
        self._rule.last_applied = snapshot.applied
        self._rule.last_journal_bytes = journal_bytes
        self._rule.last_size = self.snapshot_bytes = len(data)
        log.info("snapshot.written", key=key, size=len(data), entries=snapshot.applied)
        return key

    async def _frozen(self) -> Snapshot:
        """The state as of one entry: from the image, so that the event loop is not blocked."""
        applied = self._shard.state.applied
        await self.write_image()
        if self._image is None or self._imaged < applied:
            return self._frozen_now()
        try:
            rows, nonce = await self._image.rows()
            # Verified, since the disk may have damaged them, and the journal is pruned after a snapshot.
            await asyncio.to_thread(restore, rows)
        except StoreError as error:
            log.error("image.damaged", path=self._image.location, error=str(error))
            await self._rebuild_image(self._image)
            return self._frozen_now()
        return Snapshot(self._imaged, nonce, rows)

    def _frozen_now(self) -> Snapshot:
        self._check_whole()
        state = self._shard.state
        return Snapshot(state.applied, self._shard.last_nonce, list(all_rows(state)))

    async def _rebuild_image(self, image: ImageStore) -> None:
        async with self._writing:
            self._imaged = -1
            self._shard.state.dirty.add_all(everything(self._shard.state))
            try:
                await image.clear()
            except StoreError as error:
                log.warning("image.not_cleared", path=image.location, error=str(error))

    def _check_whole(self) -> None:
        state = self._shard.state
        if not state.is_whole:
            raise StateNotWhole(f"entry {state.applied} was applied by half: no snapshot is made of that")

    async def prune(self) -> None:
        """Archive and delete the entries before the older of the snapshots that are kept."""
        keys = await self._own_snapshots()
        if len(keys) < KEPT_SNAPSHOTS:
            return
        start = await self._journal.start()
        target = applied_of(keys[-KEPT_SNAPSHOTS])
        if target > start:
            kept = await self._archive(start, target)
            await self._raise_start(target)
            await self._delete_entries(start, target, kept)
            log.info("journal.pruned", shard=self._journal.shard, start=target)
        await self._blobs.delete(keys[:-KEPT_SNAPSHOTS])

    async def _own_snapshots(self) -> list[str]:
        return await own_snapshots(self._journal, self._blobs, self._shard.state.applied)

    async def _archive(self, first: int, end: int) -> set[int]:
        """Entries [first, end) into the blobs. Returns those that must stay: the first of every epoch."""
        kept: set[int] = set()
        batch: list[bytes] = []
        batch_first, size = first, 0
        async for stored in self._journal.entries(first):
            if stored.number >= end:
                break
            if _begins_epoch(stored):
                kept.add(stored.number)
            batch.append(stored.data)
            size += len(stored.data)
            if size >= ARCHIVE_BYTES:
                await self._put_archive(batch_first, batch)
                batch_first, size, batch = stored.number + 1, 0, []
        if batch:
            await self._put_archive(batch_first, batch)
        return kept

    async def _put_archive(self, first: int, entries: list[bytes]) -> None:
        data = await asyncio.to_thread(encode_archive, first, entries)
        key = new_archive_key(self._journal.shard, first, len(entries), self._clock())
        await self._blobs.put(key, [data])

    async def _raise_start(self, number: int) -> None:
        store, key = self._journal.store, start_key(self._journal.shard)
        found = await store.get(key)
        value = encode_start(number, os.urandom(NONCE_BYTES))
        outcome = await store.put(key, value, found.version if found is not None else None)
        if not isinstance(outcome, Won) and await self._journal.start() < number:
            raise RuntimeError(f"the journal's start could not be raised: {outcome}")

    async def _delete_entries(self, first: int, end: int, kept: set[int]) -> None:
        keys = await self._left_below(first)
        keys += [entry_key(self._journal.shard, n) for n in range(first, end) if n not in kept]
        for at in range(0, len(keys), DELETE_ENTRIES):
            await self._journal.store.delete(keys[at : at + DELETE_ENTRIES])

    async def _left_below(self, end: int) -> list[str]:
        """Keys of entries that an earlier pruning left: they are archived already."""
        left: list[str] = []
        async for stored in self._journal.entries(0):
            if stored.number >= end:
                break
            if not _begins_epoch(stored):
                left.append(stored.key)
        return left


async def _encoded(copies: Sequence[PartitionCopy]) -> list[Row]:
    """In slices: thousands of partitions take longer than clients should wait."""
    rows: list[Row] = []
    began = time.perf_counter()
    for copy in copies:
        rows += copy.rows()
        if time.perf_counter() - began >= ENCODE_S:
            await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
    return rows


def _begins_epoch(stored: StoredEntry) -> bool:
    records = decode_entry(stored.data, stored.key).records
    return any(isinstance(record, OwnerChanged) for record in records)
