"""Moves of ledgers with a past: pruned, restored from a backup, never claimed, or of an earlier version."""

import asyncio
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.objects import ObjectSegments
from gateway.cli.exits import Exit
from gateway.cli.ledger_move import MoveOptions, move_ledger
from gateway.config import load_settings
from gateway.coordination.claim import claim_data, newest_claim, verify_data, verify_place
from gateway.coordination.recovery import recover
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.offline.backup import read_backup, restore_backup, write_backup
from gateway.offline.move import LedgerMove, MoveSummary, Place, interrupted_move
from gateway.offline.move_plan import plan_move
from gateway.store_assembly import opened_stores
from ledger.batch.header import walk
from ledger.batch.records import read_batch
from ledger.partitions.markers import is_marker, marker_bytes
from ledger.partitions.requests import ReserveProducerIds
from ledger.types import Buffer, DraftBatch, Position
from tests.support.embedded import Client
from tests.support.faulty import FaultyMetadata
from tests.support.held_stores import Death, Deaths
from tests.support.journalled import topic_id
from tests.support.movable import InMemory, empty_target, ledger_with_records, place_over
from tests.support.shards import open_shard
from tests.support.versions import ROOT

NOW_MS = 1_700_001_000_000
HOUR_MS = 3_600_000
MAX_BATCH_BYTES = 1 << 24
FIXTURES = sorted((ROOT / "tests/fixtures").glob("data_directory_*"))


@pytest.fixture
async def source(tmp_path: Path) -> InMemory:
    return await ledger_with_records(tmp_path)


def moving(source: Place, target: Place) -> LedgerMove:
    return LedgerMove(source, target, "etcd://host/p", "s3://bucket/p", lambda: NOW_MS + 5 * HOUR_MS)


async def move(source: Place, target: Place) -> MoveSummary:
    recovered = await recover(source.journal, None, source.blobs)
    plan = await plan_move(recovered.state, source.segments)
    return await moving(source, target).run(recovered, plan, lambda _: None)


async def start(stores: InMemory) -> int:
    """As a gateway does. Returns the number of entries."""
    shard = await open_shard(stores.metadata, stores.blobs, None, 1, lambda: NOW_MS + 6 * HOUR_MS)
    await claim_data(shard, stores.blobs, is_lasting=True)
    await shard.close()
    return shard.state.applied


async def test_a_pruned_journal_moves_and_the_new_one_begins_with_its_last_entry(source: InMemory) -> None:
    shard = await open_shard(source.metadata, source.blobs, None, 1, lambda: NOW_MS)
    await claim_data(shard, source.blobs, is_lasting=True)
    checkpointer = Checkpointer(shard, None, source.blobs, SnapshotRule(1), lambda: NOW_MS)
    for _ in range(2):
        await shard.ask(ReserveProducerIds(1), asyncio.get_running_loop().time() + 5)
        await checkpointer.snapshot()
    await checkpointer.prune()
    await shard.close()
    applied = shard.state.applied
    assert await source.place().journal.start() > 0
    target = empty_target()
    done = await move(source.place(), target.place())
    assert done.moved and done.journal_entries == applied
    journal = target.place().journal
    assert await journal.start() == applied - 1
    assert await journal.get(applied - 1) == await source.place().journal.get(applied - 1)
    # The entry that begins the epoch here, and that of the gateway.
    assert await start(target) == applied + 2
    assert await target.holds_the_ledger() and not await source.holds_the_ledger()


async def test_what_a_restore_keeps_is_kept_after_a_move_too(source: InMemory) -> None:
    backup, store = MemoryBlobs(), MemoryMetadata()
    journal = MetadataJournal(source.metadata, 0)
    await write_backup(journal, await recover(journal, None, source.blobs), backup, NOW_MS)
    # Acknowledged after the backup, and lost with the metadata.
    segments = ObjectSegments(source.blobs)
    later = DraftBatch(topic_id(1), 0, Client().batch("t", 0), 2)
    kept = (await segments.write([later], NOW_MS + HOUR_MS)).locator
    fresh = MetadataJournal(store, 0)
    found = await read_backup(backup)
    restored = await restore_backup(found, fresh, source.blobs, None, segments, NOW_MS + 2 * HOUR_MS)
    assert restored.kept == [kept]
    source = InMemory(store, source.blobs)
    # Of no journal, and of a time that is not kept.
    orphan = (await ObjectSegments(source.blobs).write([later], NOW_MS + 3 * HOUR_MS)).locator

    target = empty_target()
    done = await move(source.place(), target.place())
    assert done.moved and (done.kept_objects, done.left_objects) == (1, 1)
    assert await target.blobs.get(kept) == await source.blobs.get(kept)
    assert orphan not in {info.key for info in await target.blobs.list("wal/")}
    state = (await target.recovered()).state
    assert state.cluster_epoch == 2 and state.objects.keeps(NOW_MS + HOUR_MS)
    assert state.next_producer_id > 1_000_000


async def test_a_ledger_that_never_claimed_its_data_moves_and_a_move_of_it_is_cancelled(
    source: InMemory,
) -> None:
    await source.blobs.delete([info.key for info in await source.blobs.list("claim/")])
    target = empty_target()
    deaths = Deaths(1, only=["metadata.put"])
    with pytest.raises(Death):
        await move(source.place(), place_over(FaultyMetadata(target.metadata, deaths), target.blobs))
    assert not await source.holds_the_ledger()
    leaving = await interrupted_move(source.blobs, 0, "etcd://host/p", "s3://bucket/p")
    assert leaving is not None
    await moving(source.place(), target.place()).cancel(leaving)
    assert await newest_claim(source.blobs, 0) == ([], None)
    assert await source.holds_the_ledger()
    assert (await move(source.place(), target.place())).moved
    assert await target.holds_the_ledger() and not await source.holds_the_ledger()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_a_directory_of_every_version_moves_with_its_records_at_their_offsets(
    tmp_path: Path, fixture: Path
) -> None:
    shutil.copytree(fixture / "directory", tmp_path / "data")
    at = {"storage.data_dir": str(tmp_path / "data")}
    before = asyncio.run(content_of(at))
    expected = [json.loads(line) for line in (fixture / "records.jsonl").read_text().splitlines()]
    assert before.records == sorted((one["partition"], one["offset"], one["value"]) for one in expected)
    metadata, data = f"sqlite:{tmp_path}/new/m.db", f"objects+file:{tmp_path}/new/objects"
    assert move_ledger(load_settings(at, {}), MoveOptions(metadata, data)) is Exit.OK
    there = {"storage.data_dir": f"{tmp_path}/new", "storage.metadata": metadata, "storage.data": data}
    assert asyncio.run(content_of(there)) == before


@dataclass(frozen=True, slots=True)
class Content:
    level: int
    topic_id: bytes
    records: list[tuple[int, int, str | None]]
    """(partition, offset, value) of the topic `orders`."""
    markers: list[tuple[int, int, bytes]]
    """(partition, offset, batch)."""


async def content_of(at: Mapping[str, object]) -> Content:
    """Of stores that a gateway may start on."""
    async with opened_stores(load_settings(at, {})) as stores:
        await verify_place(stores.journal, stores.blobs)
        state = (await recover(stores.journal, None, stores.blobs)).state
        await verify_data(stores.journal, stores.blobs, state)
        topic = state.topics.by_name["orders"]
        records: list[tuple[int, int, str | None]] = []
        markers: list[tuple[int, int, bytes]] = []
        for log in topic.partitions:
            for run in log.runs():
                if is_marker(run):
                    markers.append((log.index, run.base, marker_bytes(run)))
                    continue
                where = Position(state.objects.locator(run.object_number), run.start, run.size)
                (data,) = await stores.segments.read([where])
                assert data is not None
                records += [(log.index, run.base + n, value) for n, value in enumerate(values_in(data))]
        return Content(state.feature_level, topic.topic_id, sorted(records), markers)


def values_in(data: Buffer) -> Iterator[str | None]:
    for walked in walk(memoryview(data)):
        batch = memoryview(data)[walked.position : walked.position + walked.size_bytes]
        for record in read_batch(batch, MAX_BATCH_BYTES)[1]:
            yield None if record.value is None else bytes(record.value).decode()
