"""After a restore, no sweep deletes what may have been acknowledged after the backup."""

import asyncio

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.coordination.recovery import recover
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.offline.backup import StoreNotEmpty, all_objects, read_backup, restore_backup, write_backup
from ledger.batch.records import Record, build_batch
from ledger.types import DraftBatch, TopicId
from tests.support.shards import open_shard

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
BACKUP_MS, LATER_MS, RESTORE_MS = START_MS + HOUR_MS, START_MS + 2 * HOUR_MS, START_MS + 3 * HOUR_MS
BATCH = DraftBatch(TopicId(bytes(16)), 0, build_batch([Record(value=b"x")]), 1)


async def test_a_snapshot_without_its_journal_is_enough_to_restore() -> None:
    segments, store, blobs = MemorySegments(), MemoryMetadata(), MemoryBlobs()
    shard = await open_shard(store, blobs, None, 1, lambda: START_MS)
    checkpointer = Checkpointer(shard, None, blobs, SnapshotRule(1), lambda: START_MS)
    await checkpointer.snapshot()
    cluster_id = shard.state.cluster_id
    await shard.close()
    fresh = MemoryMetadata()
    journal = MetadataJournal(fresh, 0)
    restored = await restore_backup(await read_backup(blobs), journal, blobs, None, segments, RESTORE_MS)
    assert restored.backup.entries == 1
    shard = await open_shard(fresh, blobs, None, 1, lambda: RESTORE_MS)
    assert (shard.state.cluster_id, shard.state.cluster_epoch) == (cluster_id, 2)
    assert shard.state.epoch == 3
    await shard.close()
    with pytest.raises(StoreNotEmpty):
        await restore_backup(await read_backup(blobs), journal, blobs, None, segments, RESTORE_MS)


async def stored(segments: MemorySegments, created_ms: int) -> str:
    placement = await segments.write([BATCH], created_ms)
    await segments.abandon(placement.locator)
    return placement.locator


async def test_a_sweep_after_a_restore_keeps_later_objects_and_deletes_older_orphans() -> None:
    segments, first_store, backup, blobs = MemorySegments(), MemoryMetadata(), MemoryBlobs(), MemoryBlobs()
    now = START_MS
    loop_time = asyncio.get_running_loop().time
    shard = await open_shard(first_store, blobs, None, 1, lambda: now)
    now = BACKUP_MS
    # Raises the floor to the start, as that passes an object: what is older was an orphan before the backup.
    await stored(segments, START_MS - 2)
    await GarbageCollector(shard, segments, HOUR_MS, lambda: now, 5.0).sweep(loop_time)
    await shard.close()
    orphan = await stored(segments, START_MS - 1)
    later = await stored(segments, LATER_MS)

    journal = MetadataJournal(first_store, 0)
    await write_backup(journal, await recover(journal, None, blobs), backup, BACKUP_MS)
    store = MemoryMetadata()
    journal = MetadataJournal(store, 0)
    restored = await restore_backup(await read_backup(backup), journal, blobs, None, segments, RESTORE_MS)
    assert restored.kept == [later]

    now = RESTORE_MS
    shard = await open_shard(store, blobs, None, 1, lambda: now)
    assert shard.state.next_producer_id > 1_000_000
    after = await stored(segments, RESTORE_MS + 1)
    now = RESTORE_MS + 10 * HOUR_MS
    await GarbageCollector(shard, segments, HOUR_MS, lambda: now, 5.0).sweep(loop_time)
    left = [found.locator async for found in all_objects(segments)]
    await shard.close()
    assert left == [later]
    assert orphan not in left and after not in left
