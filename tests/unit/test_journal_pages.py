"""A journal is read a page at a time, whatever the size of its entries."""

from collections.abc import Sequence

from adapters.journals.metadata import SCAN_ENTRIES, MetadataJournal, entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.journal import stored_entries
from ledger.journal import MAX_ENTRY_BYTES
from ledger.ports import SCAN_BYTES, Versioned


class Watched(MemoryMetadata):
    def __init__(self) -> None:
        super().__init__()
        self.pages: list[list[int]] = []

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        page = await super().scan(prefix, start, limit)
        self.pages.append([len(found.value) for _, found in page])
        return page


async def pages_of(sizes: Sequence[int]) -> list[list[int]]:
    store = Watched()
    for number, size in enumerate(sizes):
        await store.put(entry_key(0, number), bytes(size), None)
    read = [(stored.number, len(stored.data)) async for stored in stored_entries(MetadataJournal(store, 0))]
    assert read == list(enumerate(sizes))
    return store.pages


async def test_a_journal_of_the_largest_entries_is_read_whole_with_few_bytes_at_a_time() -> None:
    pages = await pages_of([MAX_ENTRY_BYTES] * 50)
    assert max(map(sum, pages)) < SCAN_BYTES + MAX_ENTRY_BYTES
    assert len(pages) == 7


async def test_a_journal_of_small_entries_is_read_with_few_scans() -> None:
    assert list(map(len, await pages_of([100] * (2 * SCAN_ENTRIES + 1)))) == [SCAN_ENTRIES, SCAN_ENTRIES, 1]
