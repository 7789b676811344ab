"""A gateway takes a shard over again: whatever others have written, pruned or claimed meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.images.sqlite import SqliteImage
from adapters.journals import metadata as journals
from adapters.journals.metadata import MetadataJournal, entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.claim import Claim, check_claim, put_claim
from gateway.coordination.recovery import recover, snapshot_keys
from gateway.coordination.takeover import take_over
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.errors import AlreadyExists, StoreDamaged, StoreError, StoreLocked, StoreUnavailable
from ledger.image import all_rows
from ledger.partitions.producers import ProducerBounds
from ledger.partitions.state import PartitionLog
from ledger.ports import Blobs, MetadataStore, PutOutcome, Versioned
from ledger.rows import digest
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic
from ledger.types import Buffer
from tests.support.held_stores import HeldBlobs, HeldMetadata
from tests.support.journalled import topic_id
from tests.support.shared_shard import NOW_MS, SharedOwner, SharedShard
from tests.support.virtual_time import run_virtually

WAIT_S = 20.0


@pytest.fixture
async def shared() -> AsyncIterator[SharedShard]:
    made = SharedShard()
    yield made
    await made.close()


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


async def deposed(shared: SharedShard, store: MetadataStore | None = None) -> tuple[SharedOwner, SharedOwner]:
    """A gateway that knows that it has lost its shard, and the one that has it."""
    old = await shared.take_over(store)
    await old.grow(5, snapshot=False)
    new = await shared.take_over()
    with pytest.raises(StoreUnavailable):
        await old.shard.barrier(deadline())
    # It has read who took over.
    await old.shard.lost.wait()
    return old, new


async def prune_up(owner: SharedOwner) -> None:
    for _ in range(3):
        await owner.grow(5)
    await owner.checkpointer.prune()


async def again(shared: SharedShard, owner: SharedOwner, blobs: Blobs | None = None) -> None:
    await take_over(owner.shard, blobs or shared.blobs, 7, deadline())


async def assert_owns_all(shared: SharedShard, owner: SharedOwner) -> None:
    """It has the newest state, and goes on with it."""
    await owner.grow(1, snapshot=False)
    joined = await recover(MetadataJournal(shared.store, 0), None, shared.blobs)
    assert digest(all_rows(joined.state)) == digest(all_rows(owner.shard.state))


async def test_a_gateway_that_missed_pruned_entries_takes_over_with_the_newest_state(
    shared: SharedShard,
) -> None:
    old, new = await deposed(shared)
    await prune_up(new)
    assert await new.shard.journal.start() > old.shard.state.applied
    await again(shared, old)
    await assert_owns_all(shared, old)
    with pytest.raises(StoreUnavailable):
        await new.shard.barrier(deadline())
    # And so may the other one.
    await prune_up(old)
    await again(shared, new)
    await assert_owns_all(shared, new)


async def test_a_state_that_an_entry_was_applied_to_in_part_is_replaced(shared: SharedShard) -> None:
    old, new = await deposed(shared)
    await new.grow(5)
    old.shard.state.is_whole = False
    before = old.shard.state
    await again(shared, old)
    assert old.shard.state is not before and old.shard.state.is_whole
    await assert_owns_all(shared, old)


async def test_a_gateway_takes_over_although_another_prunes_what_it_is_reading(
    shared: SharedShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SCAN_ENTRIES", 64)
    store = HeldMetadata(shared.store)
    old, new = await deposed(shared, store)
    await new.grow(100, snapshot=False)
    # One page is read and applied.
    store.scans.shut(free=1)
    taking = asyncio.create_task(again(shared, old))
    await store.scans.until_held()
    assert old.shard.state.applied > 60
    await prune_up(new)
    store.scans.open()
    await taking
    await assert_owns_all(shared, old)


async def test_a_gateway_takes_over_although_the_snapshot_that_it_loads_is_overtaken(
    shared: SharedShard,
) -> None:
    old, new = await deposed(shared)
    await prune_up(new)
    first_keys = await snapshot_keys(shared.blobs, 0)

    class Slow(HeldBlobs):
        async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
            if key in first_keys:
                await prune_up(new)
            return await super().get(key, start, size)

    await again(shared, old, Slow(shared.blobs))
    await assert_owns_all(shared, old)


async def test_an_epoch_whose_first_entry_was_pruned_does_not_begin_and_the_next_attempt_does(
    shared: SharedShard,
) -> None:
    store = HeldMetadata(shared.store)
    old, new = await deposed(shared, store)
    store.hold()
    taking = asyncio.create_task(again(shared, old))
    await store.until_held()
    assert store.put_keys[-1] == entry_key(0, new.shard.state.applied)
    await prune_up(new)
    store.release()
    with pytest.raises(StoreError):
        await taking
    assert old.shard.why_not
    await again(shared, old)
    await assert_owns_all(shared, old)


async def test_an_entry_that_is_missing_above_the_start_is_damage(shared: SharedShard) -> None:
    old, new = await deposed(shared)
    await new.grow(5, snapshot=False)
    await shared.store.delete([entry_key(0, new.shard.state.applied - 3)])
    with pytest.raises(StoreDamaged, match="is missing"):
        await again(shared, old)
    assert old.shard.why_not


async def test_of_two_attempts_at_a_time_one_begins_an_epoch(shared: SharedShard) -> None:
    old, new = await deposed(shared)
    outcomes = await asyncio.gather(again(shared, old), again(shared, old), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreUnavailable]
    assert old.shard.state.epoch == new.shard.state.epoch + 1


async def test_a_gateway_that_starts_while_the_owner_is_at_work_tries_the_next_number(
    shared: SharedShard,
) -> None:
    owner = await shared.take_over()
    store = HeldMetadata(shared.store)
    store.hold()
    starting = asyncio.create_task(shared.take_over(store))
    await store.until_held()
    await owner.grow(70, snapshot=False)
    store.release()
    newer = await starting
    assert newer.shard.state.applied == owner.shard.state.applied + 1 and newer.shard.state.epoch == 2
    await assert_owns_all(shared, newer)
    with pytest.raises(StoreUnavailable):
        await owner.shard.barrier(deadline())


class FarBehind(MemoryMetadata):
    """Of a gateway whose read of an entry takes as long as the owner needs to write the next one."""

    def __init__(self, near: MemoryMetadata, owner: SharedOwner) -> None:
        super().__init__(exclusive=False)
        self._near = near
        self._owner = owner
        self.is_busy = False

    async def get(self, key: str) -> Versioned | None:
        if self.is_busy and key.startswith("journal/"):
            await self._owner.grow(1, snapshot=False)
            await asyncio.sleep(1.0)
        return await self._near.get(key)

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._near.scan(prefix, start, limit)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self.is_busy = True
        await self._owner.grow(1, snapshot=False)
        return await self._near.put(key, value, expect)


def test_a_gateway_that_reads_more_slowly_than_the_owner_writes_gives_up_after_half_a_minute() -> None:
    async def start() -> float:
        shared = SharedShard()
        owner = await shared.take_over()
        with pytest.raises(StoreUnavailable, match="faster than this one reads"):
            await shared.take_over(FarBehind(shared.store, owner))
        await owner.shard.barrier(deadline())
        ended = asyncio.get_running_loop().time()
        await shared.close()
        return ended

    assert 30.0 <= run_virtually(start) < 40.0


async def test_a_gateway_whose_first_entry_was_pruned_starts_again_with_a_snapshot(
    shared: SharedShard,
) -> None:
    owner = await shared.take_over()
    store = HeldMetadata(shared.store)
    store.hold()
    starting = asyncio.create_task(shared.take_over(store))
    await store.until_held()
    await prune_up(owner)
    assert await owner.shard.journal.start() > 1
    store.release()
    newer = await starting
    assert store.put_keys[0] == entry_key(0, 1) and newer.shard.state.epoch == 2
    assert newer.shard.state.applied == owner.shard.state.applied + 1
    await assert_owns_all(shared, newer)


# The claim


async def copy_of(store: MetadataStore) -> MemoryMetadata:
    copied = MemoryMetadata(exclusive=False)
    for key, found in await store.scan(""):
        await copied.put(key, found.value, None)
    return copied


async def test_a_takeover_claims_the_data_so_that_an_older_copy_is_refused(shared: SharedShard) -> None:
    old, _ = await deposed(shared)
    older = await copy_of(shared.store)
    await again(shared, old)
    await check_claim(MetadataJournal(shared.store, 0), shared.blobs)
    epoch = old.shard.state.epoch
    with pytest.raises(StoreDamaged, match=f"epoch {epoch} began at journal entry"):
        await check_claim(MetadataJournal(older, 0), shared.blobs)
    assert await shared.blobs.get("cluster-id") == old.shard.state.cluster_id.encode()


async def test_a_journal_that_is_not_kept_claims_nothing(shared: SharedShard) -> None:
    old, _ = await deposed(shared)
    await take_over(old.shard, shared.blobs, 7, deadline(), is_lasting=False)
    assert not await shared.blobs.list("claim/") and not await shared.blobs.list("cluster-id")


async def test_data_that_another_copy_has_claimed_is_not_taken_over(shared: SharedShard) -> None:
    old, new = await deposed(shared)
    await put_claim(shared.blobs, 0, Claim(new.shard.state.cluster_id, 9, 3, b"another nonce..."))
    with pytest.raises(StoreDamaged, match="another copy"):
        await again(shared, old)
    assert await MetadataJournal(shared.store, 0).get(new.shard.state.applied) is None


async def test_a_gateway_whose_claim_fails_does_not_serve_and_may_take_over_later(
    shared: SharedShard,
) -> None:
    class Overtaken(MemoryBlobs):
        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            if key.startswith("claim/"):
                raise AlreadyExists(key)
            await super().put(key, parts)

    old, _ = await deposed(shared)
    with pytest.raises(StoreLocked):
        await again(shared, old, Overtaken())
    assert old.shard.why_not
    await again(shared, old)
    await assert_owns_all(shared, old)


# What was made of the state before


async def test_an_image_of_the_state_before_is_replaced_by_a_whole_one(
    shared: SharedShard, tmp_path: Path
) -> None:
    old, new = await deposed(shared)
    await old_topic(new)
    image = SqliteImage(tmp_path / "image")
    checkpointer = Checkpointer(old.shard, image, shared.blobs, SnapshotRule(1), lambda: NOW_MS)
    await checkpointer.write_image()
    await prune_up(new)
    await again(shared, old)
    await checkpointer.write_image()
    rows, _ = await image.rows()
    assert digest(rows) == digest(all_rows(old.shard.state))
    await image.close()


async def old_topic(owner: SharedOwner) -> None:
    await owner.ask(CreateTopic("t", topic_id(1), 3, {}))


async def test_an_image_that_waits_for_an_entry_while_the_state_is_replaced_is_not_of_both(
    shared: SharedShard, tmp_path: Path
) -> None:
    old, new = await deposed(shared)
    await old_topic(new)
    await prune_up(new)
    later = await recover(MetadataJournal(shared.store, 0), None, shared.blobs)
    image, replica = SqliteImage(tmp_path / "image"), old.shard.replica
    checkpointer = Checkpointer(old.shard, image, shared.blobs, SnapshotRule(1), lambda: NOW_MS)
    async with replica.applying:
        replacing = asyncio.create_task(replica.replace(later.state, later.nonce, 0))
        await asyncio.sleep(0)
        writing = asyncio.create_task(checkpointer.write_image())
        await asyncio.sleep(0)
    await asyncio.gather(replacing, writing)
    assert await image.load() is None
    await checkpointer.write_image()
    rows, _ = await image.rows()
    assert digest(rows) == digest(all_rows(later.state))
    await image.close()


async def test_whoever_keeps_something_by_the_state_learns_that_it_is_another_one(
    shared: SharedShard,
) -> None:
    owner = await shared.take_over()
    await old_topic(owner)
    before = owner.shard.state
    before.topics.version, before.producer_bounds = 20, ProducerBounds(3, 2)
    moved, gone = before.logs[0], before.logs[2]
    later = LedgerState()
    later.logs[0] = PartitionLog(0, topic_id(1), 0)
    touched: list[PartitionLog] = []
    owner.shard.subscribe(touched.extend)
    waiting = asyncio.create_task(owner.shard.replica.barrier(50, deadline()))
    await asyncio.sleep(0)
    later.applied = 50
    await owner.shard.replica.replace(later, bytes(16), 7)
    await waiting
    assert touched == [later.logs[0], gone] and moved not in touched
    assert later.topics.version > 20 and later.producer_bounds == ProducerBounds(3, 2)
