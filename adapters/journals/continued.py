"""A journal of two parts: entries below a number are in an older journal, which is only read.

So a directory whose journal was in SQLite goes on in a local log, and nothing is copied. The older part is
needed until `start` has passed it (docs/decisions/0059).
"""

from collections.abc import Sequence

from ledger.errors import StoreError
from ledger.ports import AppendOutcome, EntryPage, Journal, StoredEntry
from ledger.types import DraftBatch
from ledger.wrapped_journal import WrappedJournal


class ContinuedJournal(WrappedJournal):
    """A Journal. `older` must be one that no other process writes."""

    def __init__(self, older: Journal, newer: Journal, first: int) -> None:
        """Entries from number `first` on are in `newer`."""
        super().__init__(newer)
        self._older = older
        self._newer = newer
        self._first = first
        self._older_start: int | None = None

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        if number < self._first:
            raise ValueError(f"entry {number} belongs to the older part, which ends before {self._first}")
        return await self._newer.append(number, entry, batches)

    async def get(self, number: int) -> bytes | None:
        return await (self._older if number < self._first else self._newer).get(number)

    async def read(self, first: int, max_bytes: int) -> EntryPage:
        if first >= self._first:
            return await self._newer.read(first, max_bytes)
        older = await self._older.read(first, max_bytes)
        entries = [stored for stored in older.entries if stored.number < self._first]
        if entries:
            return EntryPage(first, entries, _before_last(older.gap, entries), more=True, pruned=False)
        newer = await self._newer.read(self._first, max_bytes)
        return EntryPage(first, newer.entries, first if newer.entries else None, newer.more, newer.pruned)

    async def start(self) -> int:
        if self._older_start is None:
            # No process raises it there any more.
            self._older_start = await self._older.start()
        return max(self._older_start, await self._newer.start())

    async def delete(self, numbers: Sequence[int]) -> None:
        """Those of the older part stay until all of it is removed."""
        newer = [number for number in numbers if number >= self._first]
        if newer:
            await self._newer.delete(newer)

    async def begin(self, number: int, entry: bytes, before: bytes | None) -> None:
        raise StoreError("a journal cannot begin here: the directory has an older part of one")


def _before_last(gap: int | None, entries: Sequence[StoredEntry]) -> int | None:
    """The gap, if it is before the last of these entries."""
    return gap if gap is not None and gap < entries[-1].number else None
