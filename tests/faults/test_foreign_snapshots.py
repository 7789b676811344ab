"""Pruning where there are snapshots of another journal, which a new or restored metadata store meets."""

import asyncio

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.recovery import snapshot_keys
from gateway.coordination.shard import Shard
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.image import all_rows
from ledger.ports import Blobs, MetadataStore
from ledger.rows import digest
from ledger.topics.requests import CreateTopic
from tests.support.journalled import topic_id
from tests.support.shards import open_shard

NOW_MS = 1_000_000
WAIT_S = 20.0


class Running:
    """A shard without an image, and its checkpointer."""

    def __init__(self, shard: Shard, blobs: Blobs) -> None:
        self.shard = shard
        self.checkpointer = Checkpointer(shard, None, blobs, SnapshotRule(1), lambda: NOW_MS)

    async def create(self, *numbers: int) -> None:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        for number in numbers:
            await self.shard.ask(CreateTopic(f"t{number}", topic_id(number), 1, {}), deadline)

    async def checkpoint(self) -> None:
        await self.checkpointer.snapshot()
        await self.checkpointer.prune()

    def topics(self) -> set[str]:
        return set(self.shard.state.topics.by_name)


async def running(metadata: MetadataStore, blobs: Blobs) -> Running:
    opened = Running(await open_shard(metadata, blobs, None, 1, lambda: NOW_MS), blobs)
    await opened.checkpointer.start()
    return opened


async def left_by_another_journal(blobs: Blobs) -> set[str]:
    """Two snapshots, of 101 and 201 entries. Returns their keys."""
    former = await running(MemoryMetadata(), blobs)
    for first in (0, 100):
        await former.create(*range(first, first + 100))
        await former.checkpointer.snapshot()
    await former.shard.close()
    return set(await snapshot_keys(blobs, 0))


async def test_snapshots_of_another_journal_never_let_entries_of_this_one_go() -> None:
    blobs, metadata = MemoryBlobs(), MemoryMetadata()
    foreign = await left_by_another_journal(blobs)
    first = await running(metadata, blobs)
    for at in (0, 10, 20):
        await first.create(*range(at, at + 10))
        await first.checkpoint()
    # The older of its own two snapshots, not of those that look newer.
    assert await first.shard.journal.start() == 21
    assert foreign < set(await snapshot_keys(blobs, 0))
    before = digest(row for row in all_rows(first.shard.state) if row.section)
    await first.shard.close()

    second = await running(metadata, blobs)
    assert second.topics() == {f"t{number}" for number in range(30)}
    assert digest(row for row in all_rows(second.shard.state) if row.section) == before
    await second.shard.close()


async def test_a_journal_that_has_grown_beyond_foreign_snapshots_prunes_by_its_own() -> None:
    blobs, metadata = MemoryBlobs(), MemoryMetadata()
    await left_by_another_journal(blobs)
    first = await running(metadata, blobs)
    await first.create(*range(1000, 1300))
    await first.checkpoint()
    assert await first.shard.journal.start() == 0
    await first.create(1300)
    await first.checkpoint()
    assert await first.shard.journal.start() == 301
    await first.shard.close()

    second = await running(metadata, blobs)
    assert second.topics() == {f"t{number}" for number in range(1000, 1301)}
    await second.shard.close()
