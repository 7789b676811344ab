"""The mark of the newest durable entry: when it is put, and which journals it refuses."""

import asyncio
from collections.abc import Sequence
from os import urandom

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.objects import ObjectSegments
from gateway.coordination import marking
from gateway.coordination.claim import Claim, put_claim, verify_data
from gateway.coordination.mark import (
    Mark,
    Verdict,
    encode_mark,
    is_set_aside,
    judge,
    mark_keys,
    new_mark_key,
    newest_mark,
    verify_mark,
)
from gateway.coordination.marking import Marking
from gateway.coordination.owner_scope import OwnerScope
from gateway.coordination.recovery import recover
from gateway.offline.backup import read_backup, restore_backup, write_backup
from ledger.cluster.records import LedgerRestored
from ledger.errors import NotFound, StoreDamaged, StoreLocked, StoreTooNew, StoreUnavailable
from ledger.ports import MetadataStore
from ledger.state import LedgerState
from ledger.types import Buffer
from tests.support.shared_shard import NOW_MS, SharedOwner, SharedShard
from tests.support.virtual_time import run_virtually

A, B = b"a" * 16, b"b" * 16
MARK = Mark("c", 3, 40, A)


async def copy_of(store: MetadataStore) -> MemoryMetadata:
    """As a backup of a metadata store, put back."""
    copied = MemoryMetadata(exclusive=False)
    for key, found in await store.scan(""):
        await copied.put(key, found.value, None)
    return copied


def marking_of(shared: SharedShard, owner: SharedOwner, now_ms: int = NOW_MS) -> Marking:
    return Marking(owner.shard, shared.blobs, lambda: now_ms, urandom)


async def verify(store: MetadataStore, blobs: MemoryBlobs) -> None:
    """As a start does."""
    journal = MetadataJournal(store, 0)
    await verify_data(journal, blobs, (await recover(journal, None, blobs)).state)


async def marked_entries(blobs: MemoryBlobs) -> list[int]:
    return [int(key.rpartition("/")[2][:20]) for key in await mark_keys(blobs, 0)]


# The comparison


@pytest.mark.parametrize(
    ("found", "start", "verdict"),
    [
        (A, 0, Verdict.HELD),
        (A, 40, Verdict.HELD),
        (None, 41, Verdict.HELD),
        (B, 41, Verdict.HELD),
        (None, 0, Verdict.OLDER),
        (None, 40, Verdict.OLDER),
        (B, 0, Verdict.ANOTHER),
        (B, 40, Verdict.ANOTHER),
    ],
)
def test_a_journal_has_the_marked_entry_or_has_pruned_it(
    found: bytes | None, start: int, verdict: Verdict
) -> None:
    assert judge(MARK, found, start) is verdict


def test_marks_from_before_the_last_restore_are_set_aside_and_later_ones_are_not() -> None:
    state = LedgerState()
    key = new_mark_key(0, 7, 5_000, urandom)
    assert not is_set_aside(key, state)
    state.restores += [LedgerRestored(3, 0, 5_001), LedgerRestored(3, 0, 4_000)]
    assert is_set_aside(key, state)
    assert not is_set_aside(new_mark_key(0, 7, 5_001, urandom), state)


# What a start says


async def test_an_older_copy_is_refused_within_one_epoch() -> None:
    """Neither the claim nor a snapshot shows it."""
    shared = SharedShard()
    owner = await shared.take_over()
    await owner.grow(3, snapshot=False)
    older = await copy_of(shared.store)
    await verify(older, shared.blobs)
    marks = marking_of(shared, owner)
    await owner.grow(5, snapshot=False)
    await verify(older, shared.blobs)
    await marks.mark()
    await verify(shared.store, shared.blobs)
    with pytest.raises(StoreDamaged, match=r"ends after 4 entries, but 9 were durable.*ledger restore"):
        await verify(older, shared.blobs)
    await shared.close()


async def test_an_older_copy_that_went_on_is_refused_however_long_it_became() -> None:
    shared, elsewhere = SharedShard(), SharedShard()
    owner = await shared.take_over()
    older = await copy_of(shared.store)
    await owner.grow(3, snapshot=False)
    await marking_of(shared, owner).mark()
    other = await elsewhere.take_over(older)
    await other.grow(9, snapshot=False)
    with pytest.raises(StoreDamaged, match=r"entry 3 of the journal .* gone on with an older copy"):
        await verify(older, shared.blobs)
    await shared.close()
    await elsewhere.close()


async def test_a_journal_that_was_pruned_past_its_mark_starts_again() -> None:
    shared = SharedShard()
    owner = await shared.take_over()
    await owner.grow(2)
    await marking_of(shared, owner).mark()
    for _ in range(2):
        await owner.grow(4)
    await owner.checkpointer.prune()
    assert await marked_entries(shared.blobs) == [2] and await owner.shard.journal.get(2) is None
    await verify(shared.store, shared.blobs)
    await shared.close()


async def test_a_mark_whose_entry_is_pruned_while_a_start_looks_refuses_nothing() -> None:
    class PrunesMeanwhile(MetadataJournal):
        """After the entry was found absent, or so it seems: `start` is read last."""

        async def get(self, number: int) -> bytes | None:
            await owner.checkpointer.prune()
            return await super().get(number)

    shared = SharedShard()
    owner = await shared.take_over()
    await owner.grow(2)
    await marking_of(shared, owner).mark()
    for _ in range(2):
        await owner.grow(4)
    assert await owner.shard.journal.start() == 0
    await verify_mark(PrunesMeanwhile(shared.store, 0), shared.blobs, owner.shard.state)
    await shared.close()


async def test_a_mark_that_is_replaced_while_it_is_read_is_read_again() -> None:
    class Replacing(MemoryBlobs):
        replacements = 0

        async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
            if self.replacements:
                self.replacements -= 1
                raise NotFound(key)
            return await super().get(key, start, size)

    blobs, state = Replacing(), LedgerState()
    assert await newest_mark(blobs, 0, state) == ("", None)
    key = new_mark_key(0, MARK.entry, 1, urandom)
    await blobs.put(key, [encode_mark(MARK)])
    blobs.replacements = 3
    assert await newest_mark(blobs, 0, state) == (key, MARK)
    blobs.replacements = 100
    with pytest.raises(StoreLocked, match="again and again"):
        await newest_mark(blobs, 0, state)


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", StoreDamaged), (b"{}", StoreDamaged), (b"7", StoreDamaged), (b'{"version": 2}', StoreTooNew)],
)
async def test_a_mark_that_cannot_be_read_is_named(content: bytes, error: type[Exception]) -> None:
    blobs, key = MemoryBlobs(), new_mark_key(0, 1, 1, urandom)
    await blobs.put(key, [content])
    with pytest.raises(error, match=key):
        await newest_mark(blobs, 0, LedgerState())


# What an owner puts


def test_a_writing_owner_puts_a_mark_a_minute_and_an_idle_one_none() -> None:
    async def main() -> None:
        shared = SharedShard()
        owner = await shared.take_over()
        scope = OwnerScope(owner.shard)
        scope.add(marking_of(shared, owner))
        await scope.begin()
        await asyncio.sleep(10 * marking.EVERY_S)
        assert not await marked_entries(shared.blobs)
        for entries in (4, 7):
            await owner.grow(3, snapshot=False)
            await asyncio.sleep(marking.EVERY_S + 1)
            assert await marked_entries(shared.blobs) == [entries - 1]
        keys = await mark_keys(shared.blobs, 0)
        await asyncio.sleep(10 * marking.EVERY_S)
        assert await mark_keys(shared.blobs, 0) == keys
        await owner.grow(1, snapshot=False)
        await scope.end()
        assert await marked_entries(shared.blobs) == [7]
        await shared.close()

    run_virtually(main)


def test_a_journal_that_is_not_kept_is_not_marked() -> None:
    async def main() -> None:
        shared = SharedShard()
        owner = await shared.take_over()
        marks = Marking(owner.shard, shared.blobs, lambda: NOW_MS, urandom, is_lasting=False)
        await marks.begin_epoch()
        await owner.grow(1, snapshot=False)
        await asyncio.sleep(2 * marking.EVERY_S)
        await marks.end_epoch()
        assert not await mark_keys(shared.blobs, 0)
        await shared.close()

    run_virtually(main)


def test_marks_go_on_after_a_store_that_failed_or_hung() -> None:
    class Failing(MemoryBlobs):
        failures = 0

        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            self.failures += 1
            if self.failures == 1:
                raise StoreUnavailable("out of reach")
            if self.failures == 2:
                await asyncio.sleep(3600)
            await super().put(key, parts)

    async def main() -> None:
        shared, blobs = SharedShard(), Failing()
        owner = await shared.take_over()
        marks = Marking(owner.shard, blobs, lambda: NOW_MS, urandom)
        await marks.begin_epoch()
        await owner.grow(1, snapshot=False)
        await asyncio.sleep(4 * marking.EVERY_S)
        assert blobs.failures == 3 and await marked_entries(blobs) == [1]
        await marks.end_epoch()
        await shared.close()

    run_virtually(main)


# Two gateways


async def test_a_late_mark_of_an_owner_that_was_replaced_refuses_nothing_and_deletes_no_later_one() -> None:
    shared = SharedShard()
    old = await shared.take_over()
    await old.grow(3, snapshot=False)
    late = marking_of(shared, old)
    new = await shared.take_over()
    await new.grow(3, snapshot=False)
    await marking_of(shared, new).mark()
    newest = (await mark_keys(shared.blobs, 0))[-1]
    await late.mark()
    assert (await mark_keys(shared.blobs, 0))[-1] == newest
    assert await marked_entries(shared.blobs) == [3, 7]
    await verify(shared.store, shared.blobs)
    third = await shared.take_over()
    await third.grow(1, snapshot=False)
    await marking_of(shared, third).mark()
    assert await marked_entries(shared.blobs) == [9]
    await shared.close()


async def test_an_owner_that_was_replaced_leaves_its_last_mark_to_the_next() -> None:
    shared = SharedShard()
    old = await shared.take_over()
    marks = marking_of(shared, old)
    await marks.begin_epoch()
    await old.grow(2, snapshot=False)
    await shared.take_over()
    with pytest.raises(StoreUnavailable):
        await old.grow(1, snapshot=False)
    await marks.end_epoch()
    assert not await mark_keys(shared.blobs, 0)
    await shared.close()


# A restore


async def test_a_restore_sets_the_mark_of_the_lost_branch_aside_until_the_new_one_has_its_own() -> None:
    shared = SharedShard()
    owner = await shared.take_over()
    await owner.grow(2, snapshot=False)
    older, backup = await copy_of(shared.store), MemoryBlobs()
    await owner.grow(9, snapshot=False)
    # The clock of that gateway was ahead of the one of whoever restores.
    await marking_of(shared, owner, NOW_MS + 3_600_000).mark()
    (lost,) = await mark_keys(shared.blobs, 0)
    await owner.shard.close()
    with pytest.raises(StoreDamaged, match="older copy"):
        await verify(older, shared.blobs)

    journal = MetadataJournal(older, 0)
    await write_backup(journal, await recover(journal, None, shared.blobs), backup, NOW_MS)
    restored = MemoryMetadata(exclusive=False)
    found, segments = await read_backup(backup), ObjectSegments(shared.blobs)
    await restore_backup(found, MetadataJournal(restored, 0), shared.blobs, None, segments, NOW_MS)
    assert await mark_keys(shared.blobs, 0) == [lost]
    await verify(restored, shared.blobs)

    heir = await shared.take_over(restored)
    await put_claim(shared.blobs, 0, claim_of(heir))
    await verify(restored, shared.blobs)
    older = await copy_of(restored)
    await heir.grow(2, snapshot=False)
    await marking_of(shared, heir).mark()
    (own,) = await mark_keys(shared.blobs, 0)
    assert own < lost
    await verify(restored, shared.blobs)
    with pytest.raises(StoreDamaged, match="older copy"):
        await verify(older, shared.blobs)
    await shared.close()


def claim_of(owner: SharedOwner) -> Claim:
    state = owner.shard.state
    return Claim(state.cluster_id, state.epoch, state.applied - 1, owner.shard.replica.last_nonce)


async def test_a_late_mark_of_the_lost_branch_stays_set_aside() -> None:
    shared = SharedShard()
    owner = await shared.take_over()
    state = owner.shard.state
    await put_late(shared.blobs, 900, made_ms=NOW_MS)
    state.restores.append(LedgerRestored(1, 0, NOW_MS + 1))
    await verify_mark(owner.shard.journal, shared.blobs, state)
    await owner.grow(1, snapshot=False)
    await Marking(owner.shard, shared.blobs, lambda: NOW_MS + 1, urandom).mark()
    assert await marked_entries(shared.blobs) == [1]
    await shared.close()


async def put_late(blobs: MemoryBlobs, entry: int, made_ms: int) -> None:
    await blobs.put(new_mark_key(0, entry, made_ms, urandom), [encode_mark(Mark("c", 1, entry, B))])
