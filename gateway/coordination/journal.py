"""How a gateway uses a shard's journal: appends that count, reads that count, and what a gap means.

The port (`ledger.ports.Journal`) says what an append and a read have done. Here that becomes what an owner, a
restart and a prune can act on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import structlog

from ledger.errors import OutcomeUnknown, StoreDamaged, StoreUnavailable
from ledger.ports import SCAN_BYTES, Appended, EntryPage, Journal, Lost, StoredEntry, Unknown
from ledger.types import DraftBatch

log = structlog.get_logger(__name__)

FIRST_RETRY_S: Final = 0.01
LONGEST_RETRY_S: Final = 1.0
SLICE_BYTES: Final = 64 * 1024
ENTRY_BYTES: Final = 2 * 1024
"""Other tasks run after entries of SLICE_BYTES, each counted with ENTRY_BYTES more: to apply them takes at
most 2 ms. Not after each entry, since a start applies a hundred thousand small ones."""


class OwnershipLost(Exception):
    """Another gateway wrote the next entry, or pruned past it: this one owns the shard no longer.
    `certain`: the entry that was to be appended is not in the journal."""

    def __init__(self, reason: str, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain


class PrunedMeanwhile(StoreUnavailable):
    """Another gateway pruned entries while they were read: what was read of them does not count."""


async def append(journal: Journal, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> bool:
    """Make entry `number` durable, with the batches that are placed in it. Returns whether it counts; False:
    `verify_counts` finds out. Until then nothing that is in it is true. StoreUnavailable: it certainly is not
    there and will not be. OwnershipLost: another gateway's entry is, or whether this one counts is unknown.
    Waits while the outcome is unknown to the store."""
    match await journal.append(number, entry, batches):
        case Appended(counts):
            return counts
        case Lost():
            raise OwnershipLost(f"journal entry {number} was written by another gateway")
        case Unknown(reason):
            raise _unknown(number, reason)


async def verify_counts(journal: Journal, number: int, may_wait: Callable[[], bool]) -> None:
    """Return if entry `number`, which was appended before this call, counts: no other gateway has pruned past
    it meanwhile. Else OwnershipLost. While `start` cannot be read, this waits for as long as `may_wait`."""
    wait_s = FIRST_RETRY_S
    while True:
        try:
            start = await journal.start()
        except (StoreUnavailable, OutcomeUnknown) as error:
            if not may_wait():
                raise _unknown(number, str(error)) from error
            if wait_s == FIRST_RETRY_S:
                log.warning("journal.start_not_read", entry=number, error=str(error))
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_RETRY_S)
        else:
            if number < start:
                raise _unknown(number, f"the journal was pruned past entry {number}")
            return


def _unknown(number: int, reason: str) -> OwnershipLost:
    return OwnershipLost(f"whether journal entry {number} counts is unknown: {reason}", certain=False)


async def stored_entries(journal: Journal, first: int = 0) -> AsyncIterator[StoredEntry]:
    """All that is stored from entry `first` on, in order, up to the end at that moment: below `start` what
    prunes have left, with gaps, and entries that need not count."""
    async for page in _pages(journal, first):
        for stored in page.entries:
            yield stored


async def entries_that_count(journal: Journal, first: int) -> AsyncIterator[StoredEntry]:
    """Entries from `first` on, in order, up to the end at that moment, while other gateways may prune.
    PrunedMeanwhile if some do not count, even after the last entry. May have gaps."""
    async for page in _pages_that_count(journal, first):
        for stored in page.entries:
            yield stored


async def consecutive_entries(journal: Journal, first: int) -> AsyncIterator[StoredEntry]:
    """The same without gaps, from `start` or later on: StoreDamaged where an entry is missing. For callers
    that apply them: other tasks run after every SLICE_BYTES."""
    applied_bytes = 0
    async for page in _pages_that_count(journal, first):
        for stored in page.entries:
            if page.gap is not None and stored.number > page.gap:
                raise StoreDamaged(
                    f"entry {page.gap} of the journal of shard {journal.shard} is missing, although entry "
                    f"{stored.where} is there: restore the metadata store"
                )
            yield stored
            applied_bytes += ENTRY_BYTES + len(stored.data)
            if applied_bytes >= SLICE_BYTES:
                applied_bytes = 0
                await asyncio.sleep(0)


async def _pages_that_count(journal: Journal, first: int) -> AsyncIterator[EntryPage]:
    async for page in _pages(journal, first):
        if page.pruned:
            raise PrunedMeanwhile(f"the journal was pruned past entry {page.first} while it was read")
        yield page


async def _pages(journal: Journal, first: int) -> AsyncIterator[EntryPage]:
    """The last one may be empty."""
    more = True
    while more:
        page = await journal.read(first, SCAN_BYTES)
        yield page
        first, more = page.next, page.more
