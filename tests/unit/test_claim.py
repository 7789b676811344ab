"""The claim of a journal on its data: copies that were left behind or continued elsewhere."""

import asyncio
from functools import partial

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.claim import Claim, check_claim, put_claim, verify_data, verify_store
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.cluster.records import OwnerChanged
from ledger.cluster.requests import Description
from ledger.errors import AlreadyExists, StoreDamaged, StoreLocked, StoreTooNew
from ledger.image import all_rows, restore
from ledger.partitions.requests import ReserveProducerIds
from ledger.ports import Blobs, MetadataStore
from ledger.registry import REGISTRY
from ledger.state import LedgerState
from tests.support.shards import open_shard

NOW_MS = 1_700_000_000_000


async def copy_of(store: MetadataStore) -> MemoryMetadata:
    copied = MemoryMetadata()
    for key, found in await store.scan(""):
        await copied.put(key, found.value, None)
    return copied


async def start(store: MetadataStore, blobs: Blobs) -> None:
    """As a gateway does."""
    await check_claim(MetadataJournal(store, 0), blobs)
    shard = await open_shard(store, blobs, None, 1, lambda: NOW_MS)
    state = shard.state
    await put_claim(
        blobs, 0, Claim(state.cluster_id, state.epoch, state.applied - 1, shard.replica.last_nonce)
    )
    await shard.close()


async def grow_and_prune(store: MetadataStore, blobs: Blobs) -> None:
    """One epoch of several entries, of which those before its older snapshot are pruned."""
    await check_claim(MetadataJournal(store, 0), blobs)
    shard = await open_shard(store, blobs, None, 1, lambda: NOW_MS)
    state = shard.state
    await put_claim(
        blobs, 0, Claim(state.cluster_id, state.epoch, state.applied - 1, shard.replica.last_nonce)
    )
    checkpointer = Checkpointer(shard, None, blobs, SnapshotRule(1), lambda: NOW_MS)
    for _ in range(2):
        for _ in range(4):
            await shard.ask(ReserveProducerIds(1), asyncio.get_running_loop().time() + 5)
        await checkpointer.snapshot()
    await checkpointer.prune()
    await shard.close()


async def test_the_newest_journal_starts_again_and_again_and_an_older_copy_does_not() -> None:
    store, blobs = MemoryMetadata(), MemoryBlobs()
    await start(store, blobs)
    older = await copy_of(store)
    for _ in range(3):
        await start(store, blobs)
    with pytest.raises(StoreDamaged, match="epoch 4 began at journal entry 3"):
        await start(older, blobs)
    assert len(await blobs.list("claim/")) == 1


async def test_a_copy_that_went_on_elsewhere_is_refused_however_long_it_became() -> None:
    store, blobs = MemoryMetadata(), MemoryBlobs()
    await start(store, blobs)
    elsewhere = await copy_of(store)
    for _ in range(5):
        await start(elsewhere, MemoryBlobs())
    await start(store, blobs)
    with pytest.raises(StoreDamaged, match="another copy"):
        await start(elsewhere, blobs)


async def test_a_copy_that_has_pruned_the_claimed_entry_s_place_is_refused_too() -> None:
    store, blobs = MemoryMetadata(), MemoryBlobs()
    await start(store, blobs)
    elsewhere = await copy_of(store)
    await start(store, blobs)
    await start(store, blobs)
    # The copy continues in one long epoch, and prunes the number of the claim's entry.
    await grow_and_prune(elsewhere, MemoryBlobs())
    journal = MetadataJournal(elsewhere, 0)
    assert await journal.start() > 2 and await journal.get(2) is None
    with pytest.raises(StoreDamaged, match="another copy"):
        await check_claim(journal, blobs)


async def test_a_journal_that_was_pruned_beyond_its_claim_starts_again() -> None:
    store, blobs = MemoryMetadata(), MemoryBlobs()
    await start(store, blobs)
    await grow_and_prune(store, blobs)
    await start(store, blobs)
    assert await MetadataJournal(store, 0).start() > 2


async def test_unclaimed_data_is_claimed() -> None:
    store = MemoryMetadata()
    await start(store, MemoryBlobs())
    await start(store, MemoryBlobs())


async def test_of_two_that_claim_at_a_time_one_fails() -> None:
    class Overtaken(MemoryBlobs):
        async def put(self, key: str, parts: object) -> None:
            raise AlreadyExists(key)

    with pytest.raises(StoreLocked, match="another gateway"):
        await put_claim(Overtaken(), 0, Claim("c", 1, 0, bytes(16)))


async def test_a_gateway_that_stalled_does_not_claim_over_a_later_epoch() -> None:
    blobs = MemoryBlobs()
    later = Claim("c", 4, 30, b"l" * 16)
    await put_claim(blobs, 0, later)
    with pytest.raises(StoreLocked, match="epoch 4"):
        await put_claim(blobs, 0, Claim("c", 3, 20, b"s" * 16))
    await put_claim(blobs, 0, Claim("c", 3, 20, b"s" * 16), is_restored=True)
    await put_claim(blobs, 0, Claim("another cluster", 1, 0, bytes(16)))


async def test_a_claim_that_is_replaced_while_it_is_read_is_read_again() -> None:
    store, blobs = MemoryMetadata(), Replacing()
    await start(store, blobs)
    blobs.replacements = 3
    await check_claim(MetadataJournal(store, 0), blobs)
    blobs.replacements = 1_000
    with pytest.raises(StoreLocked, match="again and again"):
        await check_claim(MetadataJournal(store, 0), blobs)


class Replacing(MemoryBlobs):
    """Another gateway claims the data between the listing and the read of the newest claim."""

    replacements = 0

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        if self.replacements and key.startswith("claim/"):
            self.replacements -= 1
            head, _, number = key.rpartition("/")
            await self.put(f"{head}/{int(number) + 1:020d}", [await super().get(key)])
            await self.delete([key])
        return await super().get(key, start, size)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", StoreDamaged),
        (b"{}", StoreDamaged),
        (b'{"version": 1, "cluster_id": "c", "epoch": 1, "entry": 0, "nonce": "zz"}', StoreDamaged),
        (b'{"version": 2}', StoreTooNew),
    ],
)
async def test_a_claim_that_cannot_be_read_is_named(content: bytes, error: type[Exception]) -> None:
    blobs = MemoryBlobs()
    await blobs.put("claim/0/00000000000000000007", [content])
    with pytest.raises(error, match="claim/0/00000000000000000007"):
        await check_claim(MetadataJournal(MemoryMetadata(), 0), blobs)


# The metadata store itself


async def begun_in(store: str, feature_level: int = 0) -> LedgerState:
    """The state of a journal whose newest owner wrote to this metadata store."""
    level, described = feature_level, Description("h", "a", store)
    journal, blobs, clock = MemoryMetadata(), MemoryBlobs(), lambda: NOW_MS
    shard = await open_shard(journal, blobs, None, 1, clock, described=described, feature_level=level)
    return shard.state


@pytest.mark.parametrize(
    ("recorded", "identity", "level"),
    [
        ("etcd cluster 1", "etcd cluster 1", 2),
        ("etcd cluster 1", "", 2),
        ("", "etcd cluster 1", 2),
        ("etcd cluster 1", "etcd cluster 2", 1),
    ],
)
async def test_a_metadata_store_that_is_the_same_or_does_not_say_is_taken(
    recorded: str, identity: str, level: int
) -> None:
    verify_store(await begun_in(recorded, level), identity)


async def test_a_metadata_store_that_was_restored_is_refused_until_the_ledger_is_restored() -> None:
    state = await begun_in("etcd cluster 1")
    for later in (state, restore(all_rows(state))):
        with pytest.raises(StoreDamaged, match="cluster 1, and this is etcd cluster 2") as refused:
            verify_store(later, "etcd cluster 2")
        assert "ledger restore" in str(refused.value)
    REGISTRY.apply(state, OwnerChanged(2, -1, bytes(16)))
    verify_store(state, "etcd cluster 2")


async def test_before_anything_is_written_the_store_is_compared() -> None:
    store, blobs = MemoryMetadata(), MemoryBlobs()
    described = Description("h", "a", "etcd cluster 1")
    first = await open_shard(store, blobs, None, 1, lambda: NOW_MS, described=described)
    await first.close()
    verify = partial(verify_data, MetadataJournal(store, 0), blobs, identity="etcd cluster 2")
    with pytest.raises(StoreDamaged, match="etcd cluster 2"):
        await open_shard(store, blobs, None, 1, lambda: NOW_MS, described=described, verify=verify)
    assert await MetadataJournal(store, 0).get(1) is None
