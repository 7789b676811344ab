"""A journal in two parts reads as one."""

from collections.abc import Sequence

import pytest

from adapters.journals.continued import ContinuedJournal
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from ledger.errors import StoreError
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.ports import Appended, Journal, StoredEntry

COUNT = 7
BYTES = (1, 100, 1 << 20)


def entry(number: int) -> bytes:
    return encode_entry(1, 0, (number + 1).to_bytes(NONCE_BYTES, "big"), [])


async def a_journal(numbers: Sequence[int], start: int = 0) -> MetadataJournal:
    journal = MetadataJournal(MemoryMetadata(), 0)
    for number in numbers:
        assert isinstance(await journal.append(number, entry(number)), Appended)
    await journal.raise_start(start)
    return journal


async def everything(
    journal: Journal, first: int, max_bytes: int
) -> tuple[list[tuple[int, bytes]], int | None]:
    """All entries from `first` on, page by page, and the first gap."""
    found: list[StoredEntry] = []
    gap, more = None, True
    while more:
        page = await journal.read(first, max_bytes)
        assert page.first == first and not page.pruned
        gap = page.gap if gap is None else gap
        found += page.entries
        assert page.entries or not page.more
        first, more = page.next, page.more
    return [(stored.number, stored.data) for stored in found], gap


@pytest.mark.parametrize("split", range(COUNT + 1))
@pytest.mark.parametrize("there", [range(COUNT), [0, 2, 3, 5, 6], [1, 6], [4, 5, 6], []], ids=str)
async def test_it_reads_as_one_journal_would(split: int, there: Sequence[int]) -> None:
    whole = await a_journal(there)
    older = await a_journal([number for number in there if number < split])
    newer = await a_journal([number for number in there if number >= split])
    journal = ContinuedJournal(older, newer, split)
    for first in range(COUNT + 1):
        assert await journal.get(first) == await whole.get(first)
        for max_bytes in BYTES:
            assert await everything(journal, first, max_bytes) == await everything(whole, first, max_bytes)


async def test_entries_that_the_older_part_got_later_do_not_count() -> None:
    """Such as those of an older build that was started on a copy of it."""
    journal = ContinuedJournal(await a_journal(range(5)), await a_journal([3]), 3)
    found, gap = await everything(journal, 0, 1)
    assert ([number for number, _ in found], gap) == ([0, 1, 2, 3], None)
    assert await journal.get(4) is None


async def test_appends_prunes_and_start_are_those_of_the_newer_part() -> None:
    older, newer = await a_journal(range(3), start=2), await a_journal([3])
    journal = ContinuedJournal(older, newer, 3)
    assert await journal.start() == 2
    assert isinstance(await journal.append(4, entry(4)), Appended)
    assert await newer.get(4) == entry(4) and await older.get(4) is None
    await journal.raise_start(4)
    assert (await journal.start(), await newer.start(), await older.start()) == (4, 4, 2)
    await journal.delete([1, 2, 3])
    assert await newer.get(3) is None
    assert await older.get(1) == entry(1), "the older part is only read"


async def test_nothing_is_appended_or_begun_in_the_older_part() -> None:
    journal = ContinuedJournal(await a_journal(range(3)), await a_journal([]), 3)
    with pytest.raises(ValueError, match="older part"):
        await journal.append(2, entry(2))
    with pytest.raises(StoreError, match="older part"):
        await journal.begin(3, entry(3), None)
