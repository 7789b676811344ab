"""How many batches share a journal entry: more where an append takes long, as over a bucket."""

import pytest

from adapters.journals.metadata import MetadataJournal, entry_prefix
from adapters.metadata.memory import MemoryMetadata
from adapters.metadata.s3 import S3Metadata
from gateway.coordination.opening import open_shard
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import StoreWatch, timed_metadata
from ledger.journal import MAX_ENTRY_BYTES, decode_entry
from ledger.partitions.records import FileCommitted
from ledger.partitions.requests import CommitFile, ReserveProducerIds
from ledger.ports import MetadataStore
from ledger.topics.requests import CreateTopic
from tests.support.journalled import batches_in_order, locator, topic_id
from tests.support.virtual_time import run_virtually

FILES, BATCHES = 20, 300
NOW_MS = 1_000


class BucketLike(MemoryMetadata):
    entry_batches = S3Metadata.entry_batches


def batches_an_entry(store: MetadataStore) -> list[int]:
    """Of files that wait for the journal together."""

    async def run() -> list[int]:
        journal = MetadataJournal(timed_metadata(store, StoreWatch(Metrics())), 0)
        shard = await open_shard(journal, None, None, 1, lambda: NOW_MS)
        await shard.submit(CreateTopic("t", topic_id(0), 1, {}))
        shard.submit(ReserveProducerIds(1))
        batches = batches_in_order(topic_id(0), 0, [1] * BATCHES)
        await_all = [shard.submit(CommitFile(locator(n, NOW_MS), 70_000, batches)) for n in range(FILES)]
        for one in await_all:
            await one
        await shard.close()
        found = await store.scan(entry_prefix(0))
        assert all(len(value.value) <= MAX_ENTRY_BYTES for _, value in found)
        entries = [decode_entry(value.value, key) for key, value in found]
        counts = [
            sum(len(record.batches) for record in entry.records if isinstance(record, FileCommitted))
            for entry in entries
        ]
        return [count for count in counts if count]

    return run_virtually(run)


@pytest.mark.parametrize(
    ("store", "most"), [(BucketLike(exclusive=False), 3_000), (MemoryMetadata(exclusive=False), 1_000)]
)
def test_an_entry_has_as_many_batches_as_its_store_allows(store: MetadataStore, most: int) -> None:
    whole = most // BATCHES * BATCHES
    counts = batches_an_entry(store)
    assert sum(counts) == FILES * BATCHES
    assert max(counts) == whole
