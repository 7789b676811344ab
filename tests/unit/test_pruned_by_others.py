"""Prunes of several gateways over one store, of which all but one were deposed and do not know it yet."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from adapters.journals import metadata as journals
from adapters.journals.metadata import MetadataJournal, entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.archives import pieces
from gateway.coordination.journal import OwnershipLost, PrunedMeanwhile, append, verify_counts
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.ports import Won
from tests.support.faulty import Fault, Faults, FaultyMetadata
from tests.support.held_stores import HeldBlobs, HeldMetadata
from tests.support.shared_shard import SharedShard
from tests.support.virtual_time import run_virtually


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SCAN_ENTRIES", 64)


@pytest.fixture
async def shared() -> AsyncIterator[SharedShard]:
    made = SharedShard()
    yield made
    await made.close()


# The start


async def test_a_deposed_gateway_that_goes_on_with_its_prune_does_not_lower_the_start(
    shared: SharedShard,
) -> None:
    blobs = HeldBlobs(shared.blobs)
    old = await shared.take_over(blobs=blobs)
    await old.grow(10)
    await old.grow(10)
    blobs.archives.shut()
    pruning = asyncio.create_task(old.checkpointer.prune())
    await blobs.archives.until_held()
    new = await shared.take_over()
    for _ in range(3):
        await new.grow(20)
    await new.checkpointer.prune()
    journal = MetadataJournal(shared.store, 0)
    assert await journal.start() == 62
    blobs.archives.open()
    await pruning
    assert await journal.start() == 62
    # A gateway that has slept until now writes an entry that was pruned meanwhile.
    assert await journal.get(11) is None
    stale = encode_entry(1, 0, bytes(NONCE_BYTES), [])
    assert not await append(journal, 11, stale)
    with pytest.raises(OwnershipLost, match="pruned past entry 11") as lost:
        await verify_counts(journal, 11, lambda: True)
    assert not lost.value.certain
    assert not new.shard.lost.is_set()
    await new.grow(1)


def test_a_start_that_cannot_be_read_for_long_is_one_line_in_the_log() -> None:
    faults = Faults(fail_at=1, fault=Fault.ERROR_BEFORE, times=20, only=["metadata.get"])
    journal = MetadataJournal(FaultyMetadata(MemoryMetadata(), faults), 0)
    with capture_logs() as logs:
        run_virtually(lambda: verify_counts(journal, 11, lambda: True))
    assert len(faults.failed) == 20
    assert [line["event"] for line in logs] == ["journal.start_not_read"]


# Archives


async def test_a_deposed_gateway_archives_nothing_under_the_number_of_another_entry(
    shared: SharedShard,
) -> None:
    await (await shared.take_over()).grow(100, snapshot=False)
    store = HeldMetadata(shared.store)
    old = await shared.take_over(store)
    for entries in (70, 140, 5):
        await old.grow(entries)
    # The second page of what it archives.
    store.scans.shut(free=1)
    pruning = asyncio.create_task(old.checkpointer.prune())
    await store.scans.until_held()
    new = await shared.take_over()
    for _ in range(2):
        await new.grow(3)
    await new.checkpointer.prune()
    await shared.take_over()
    store.scans.open()
    await pruning
    archived = await shared.archived()
    assert {number: {shared.store.nonces[number]} for number in archived} == archived
    assert set(archived) >= set(range(await MetadataJournal(shared.store, 0).start()))


async def test_a_scan_that_another_prune_overtakes_meets_no_entry_of_a_gateway_that_slept(
    shared: SharedShard,
) -> None:
    """The pruned number 64 is free again, so a put of it wins, and does not count."""
    store = HeldMetadata(shared.store)
    old = await shared.take_over(store)
    await old.grow(63, snapshot=False)
    for _ in range(3):
        await old.grow(5)
    store.scans.shut(free=1)
    found: list[int] = []

    async def archive() -> None:
        async for piece in pieces(old.shard.journal, 0):
            found.extend(stored.number for stored in piece)

    reading = asyncio.create_task(archive())
    await store.scans.until_held()
    new = await shared.take_over()
    await new.checkpointer.prune()
    assert await new.shard.journal.start() > 65
    slept = encode_entry(9, 0, bytes(NONCE_BYTES), [])
    assert isinstance(await shared.store.put(entry_key(0, 64), slept, None), Won)
    store.scans.open()
    with pytest.raises(PrunedMeanwhile, match="past entry 64"):
        await reading
    assert 64 not in found


async def test_pieces_end_at_gaps() -> None:
    journal = MetadataJournal(MemoryMetadata(), 0)
    for number in (3, 4, 5, 9, 11, 12, 20):
        await journal.store.put(entry_key(0, number), b"entry", None)
    found = [[stored.number for stored in piece] async for piece in pieces(journal, 3, 20)]
    assert found == [[3, 4, 5], [9], [11, 12]]
