"""Over every metadata store the start of a journal never goes back, however two prunes interleave."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from gateway.coordination.blob_keys import new_snapshot_key
from gateway.coordination.journal import Journal
from gateway.housekeeping.pruning import Pruner
from ledger.formats.snapshot import Snapshot, encode_snapshot
from ledger.journal import NONCE_BYTES, encode_entry, entry_key, nonce_of, start_key
from ledger.ports import MetadataStore, Won
from tests.contract.backends import ETCD, METADATA, metadata_url, opened_metadata
from tests.support.interleaved import InterleavedMetadata, Interleaving

INTERLEAVINGS = 1_000
FEWER = {ETCD: 60}
"""Over a server each call takes a millisecond, where it takes microseconds in memory."""
GROWTH = 3
SEED = 20_261_122
NOW_MS = 1_000_000


@pytest.fixture(params=METADATA)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    store = opened_metadata(metadata_url(request, tmp_path))
    yield store
    await store.close()


@pytest.fixture
def interleavings(request: pytest.FixtureRequest) -> int:
    return FEWER.get(request.node.callspec.params["store"], INTERLEAVINGS)


async def test_the_start_never_goes_back_while_an_owner_and_a_deposed_one_prune(
    store: MetadataStore, interleavings: int
) -> None:
    journal, blobs, dice = Journal(store, 0), MemoryBlobs(), random.Random(SEED)
    starts = [0]

    async def note_start() -> None:
        starts.append(await journal.start())

    interleaving = Interleaving(dice, note_start)
    gateways = [InterleavedMetadata(store, interleaving, unknown_prefix=start_key(0)) for _ in range(2)]
    pruners = [Pruner(Journal(gateway, 0), blobs, lambda: NOW_MS) for gateway in gateways]
    raised_by_both = 0
    for end in range(GROWTH, interleavings * GROWTH + 1, GROWTH):
        for number in range(end - GROWTH, end):
            entry = encode_entry(1, 0, dice.randbytes(NONCE_BYTES), [])
            assert isinstance(await store.put(entry_key(0, number), entry, None), Won)
            snapshot = Snapshot(number + 1, nonce_of(entry), [])
            await blobs.put(new_snapshot_key(0, number + 1, NOW_MS), [encode_snapshot(snapshot)])
        before = len(starts)
        # The deposed one knows nothing of the last entry.
        await interleaving.run(pruners[0].prune(end - 1), pruners[1].prune(end))
        raised_by_both += len(set(starts[before:])) > 2
    assert starts == sorted(starts)
    assert starts[-1] > (interleavings - 1) * GROWTH
    # They did get in each other's way.
    assert raised_by_both > interleavings / 20
    assert all(gateway.unknown > interleavings / 20 for gateway in gateways)
