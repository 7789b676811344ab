"""A thin wrapper around a journal that is over no metadata store: its calls are measured under the names that
those of a metadata store have."""

from collections.abc import Sequence

from gateway.telemetry.stores import StoreWatch
from ledger.ports import AppendOutcome, EntryPage, Journal, Unknown
from ledger.types import DraftBatch
from ledger.wrapped_journal import WrappedJournal


class TimedJournal(WrappedJournal):
    """A Journal. An append counts as `put`, a read of several entries as `scan`."""

    def __init__(self, journal: Journal, watch: StoreWatch) -> None:
        super().__init__(journal)
        self._get = watch.timed("metadata", "get")
        self._scan = watch.timed("metadata", "scan")
        self._put = watch.timed("metadata", "put")
        self._delete = watch.timed("metadata", "delete")

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        with self._put.begin() as call:
            outcome = await self._journal.append(number, entry, batches)
            if isinstance(outcome, Unknown):
                call.unknown = outcome.reason
        return outcome

    async def get(self, number: int) -> bytes | None:
        with self._get.begin():
            return await self._journal.get(number)

    async def read(self, first: int, max_bytes: int) -> EntryPage:
        with self._scan.begin():
            return await self._journal.read(first, max_bytes)

    async def start(self) -> int:
        with self._get.begin():
            return await self._journal.start()

    async def raise_start(self, number: int) -> None:
        with self._put.begin():
            await self._journal.raise_start(number)

    async def delete(self, numbers: Sequence[int]) -> None:
        with self._delete.begin():
            await self._journal.delete(numbers)

    async def begin(self, number: int, entry: bytes, before: bytes | None) -> None:
        with self._put.begin():
            await self._journal.begin(number, entry, before)

    async def discard(self, number: int) -> None:
        with self._delete.begin():
            await self._journal.discard(number)
