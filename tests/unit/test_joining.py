"""What reads a journal while another gateway prunes it ends with the owner's state, or with one error."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.images.sqlite import SqliteImage
from adapters.journals import metadata as journals
from adapters.journals.metadata import MetadataJournal, entry_key
from gateway.coordination.recovery import MAX_BEGINNINGS, recover, snapshot_keys
from ledger.errors import StoreDamaged, StoreUnavailable
from ledger.image import all_rows
from ledger.ports import Versioned
from ledger.rows import digest
from tests.support.held_stores import HeldBlobs, HeldMetadata
from tests.support.shared_shard import SharedOwner, SharedShard


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SCAN_ENTRIES", 64)


@pytest.fixture
async def shared() -> AsyncIterator[SharedShard]:
    made = SharedShard()
    yield made
    await made.close()


async def grown(shared: SharedShard) -> SharedOwner:
    owner = await shared.take_over()
    await owner.grow(100, snapshot=False)
    return owner


async def prune_up(owner: SharedOwner) -> None:
    for _ in range(3):
        await owner.grow(5)
    await owner.checkpointer.prune()


async def test_a_gateway_that_joins_while_another_prunes_ends_with_the_owners_state(
    shared: SharedShard,
) -> None:
    owner = await grown(shared)
    store = HeldMetadata(shared.store)
    # The first is that of the first key; then a page of entries.
    store.scans.shut(free=2)
    joining = asyncio.create_task(recover(MetadataJournal(store, 0), None, shared.blobs))
    await store.scans.until_held()
    await prune_up(owner)
    assert await owner.shard.journal.start() == 111
    store.scans.open()
    joined = await joining
    assert joined.state.applied == owner.shard.state.applied
    assert digest(all_rows(joined.state)) == digest(all_rows(owner.shard.state))
    assert joined.source.startswith("snapshot/")


async def test_a_gateway_joins_although_all_snapshots_that_it_has_listed_are_deleted(
    shared: SharedShard,
) -> None:
    owner = await grown(shared)
    await prune_up(owner)
    first_keys = await snapshot_keys(shared.blobs, 0)

    class Slow(HeldBlobs):
        async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
            if key in first_keys:
                await prune_up(owner)
            return await super().get(key, start, size)

    joined = await recover(MetadataJournal(shared.store, 0), None, Slow(shared.blobs))
    assert digest(all_rows(joined.state)) == digest(all_rows(owner.shard.state))
    assert not set(first_keys) & set(await snapshot_keys(shared.blobs, 0))


async def test_a_snapshot_made_while_a_gateway_joins_is_not_taken_for_one_of_a_newer_store(
    shared: SharedShard,
) -> None:
    owner = await grown(shared)

    class Slow(HeldBlobs):
        lists = 0

        async def list(self, prefix: str, after: str = "", limit: int = 1000):  # type: ignore[no-untyped-def]
            self.lists += 1
            if self.lists == 2:
                await owner.grow(5)
            return await super().list(prefix, after, limit)

    blobs = Slow(shared.blobs)
    joined = await recover(MetadataJournal(shared.store, 0), None, blobs)
    assert blobs.lists >= 2
    assert joined.state.applied == 101


async def test_an_image_whose_last_entry_is_pruned_while_a_gateway_joins_is_not_one_of_a_newer_store(
    shared: SharedShard, tmp_path: Path
) -> None:
    owner = await grown(shared)
    image, last = SqliteImage(tmp_path / "image"), owner.shard.state.applied - 1
    await image.write(list(all_rows(owner.shard.state)), owner.shard.replica.last_nonce)

    class Slow(HeldMetadata):
        async def get(self, key: str) -> Versioned | None:
            # First to see that the image is of this journal, then to see that the journal is not older.
            if key == entry_key(0, last) and key in self.read_keys:
                await prune_up(owner)
            return await super().get(key)

    store = Slow(shared.store)
    joined = await recover(MetadataJournal(store, 0), image, shared.blobs)
    await image.close()
    assert store.read_keys.count(entry_key(0, last)) == 2
    assert digest(all_rows(joined.state)) == digest(all_rows(owner.shard.state))


@pytest.mark.parametrize("at", [63, 64, 110])
async def test_an_entry_that_is_missing_above_the_start_is_damage(shared: SharedShard, at: int) -> None:
    owner = await grown(shared)
    await owner.grow(30, snapshot=False)
    await shared.store.delete([entry_key(0, at)])
    with pytest.raises(StoreDamaged, match=f"entry {at} of the journal of shard 0 is missing"):
        await recover(MetadataJournal(shared.store, 0), None, shared.blobs)


async def test_an_entry_that_is_missing_above_a_start_that_was_raised_meanwhile_is_damage(
    shared: SharedShard,
) -> None:
    owner = await grown(shared)
    store = HeldMetadata(shared.store)
    store.scans.shut(free=2)
    joining = asyncio.create_task(recover(MetadataJournal(store, 0), None, shared.blobs))
    await store.scans.until_held()
    await prune_up(owner)
    await owner.grow(5, snapshot=False)
    await shared.store.delete([entry_key(0, 118)])
    store.scans.open()
    with pytest.raises(StoreDamaged, match="entry 118 of the journal of shard 0 is missing"):
        await joining


async def test_a_join_that_prunes_always_overtake_ends_with_an_error_that_says_so(
    shared: SharedShard,
) -> None:
    owner = await grown(shared)

    class Overtaken(HeldMetadata):
        async def scan(
            self, prefix: str, start: str = "", limit: int = 1000
        ) -> Sequence[tuple[str, Versioned]]:
            if limit > 1:
                await prune_up(owner)
            return await super().scan(prefix, start, limit)

    with pytest.raises(StoreUnavailable, match=f"pruned {MAX_BEGINNINGS} times while it was read"):
        await recover(MetadataJournal(Overtaken(shared.store), 0), None, shared.blobs)
