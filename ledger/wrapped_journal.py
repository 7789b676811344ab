"""A journal in front of another one, which answers what is not overridden."""

from collections.abc import Sequence

from ledger.ports import AppendOutcome, EntryPage, Journal
from ledger.read_back import ReadBack
from ledger.types import DraftBatch, Placement


class WrappedJournal:
    """A Journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def shard(self) -> int:
        return self._journal.shard

    @property
    def exclusive(self) -> bool:
        return self._journal.exclusive

    @property
    def entry_batches(self) -> int:
        return self._journal.entry_batches

    @property
    def unknown_entry(self) -> str:
        return self._journal.unknown_entry

    @property
    def read_back(self) -> ReadBack:
        return self._journal.read_back

    @property
    def appends_at_once(self) -> bool:
        return self._journal.appends_at_once

    def takes(self, batches: int, size: int) -> bool:
        return self._journal.takes(batches, size)

    def holds(self, locator: str) -> bool:
        return self._journal.holds(locator)

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        return self._journal.place(number, batches)

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        return await self._journal.append(number, entry, batches)

    async def get(self, number: int) -> bytes | None:
        return await self._journal.get(number)

    async def read(self, first: int, max_bytes: int) -> EntryPage:
        return await self._journal.read(first, max_bytes)

    async def start(self) -> int:
        return await self._journal.start()

    async def raise_start(self, number: int) -> None:
        await self._journal.raise_start(number)

    async def delete(self, numbers: Sequence[int]) -> None:
        await self._journal.delete(numbers)

    async def begin(self, number: int, entry: bytes, before: bytes | None) -> None:
        await self._journal.begin(number, entry, before)

    async def discard(self, number: int) -> None:
        await self._journal.discard(number)


class EntriesAlone(WrappedJournal):
    """A journal that takes batches, where they belong into another store: entries alone go into it."""

    def takes(self, batches: int, size: int) -> bool:
        return False

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        return None

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        if batches:
            raise ValueError("this journal takes no batches: they belong into another store")
        return await super().append(number, entry)
