"""The stored objects of a ledger, without those that are only files of its journal.

A file of a local log is an object as soon as an entry has numbered batches in it. Before that, and where
entries alone go into the log, it belongs to the journal: no entry names it, and it is no orphan.
"""

from collections.abc import Sequence

from ledger.ports import Capabilities, Journal, SegmentStore
from ledger.records import FIRST_LEVEL
from ledger.state import LedgerState
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject


class LedgerObjects:
    """A SegmentStore that lists no more than the ledger's objects and what may be orphans of it."""

    def __init__(self, segments: SegmentStore, journal: Journal, state: LedgerState) -> None:
        """`state` of the journal at its end. The caller closes `segments`."""
        self._segments = segments
        self._journal = journal
        self._state = state

    @property
    def capabilities(self) -> Capabilities:
        return self._segments.capabilities

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        while page := await self._segments.objects(after, limit):
            named = self._state.objects.by_locator
            found = [
                stored
                for stored in page
                if stored.locator in named or not self._journal.holds(stored.locator)
            ]
            if found:
                return found
            after = page[-1].locator
        return ()

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        return await self._segments.write(batches, created_ms, feature_level)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._segments.read(positions)

    async def abandon(self, locator: str) -> None:
        await self._segments.abandon(locator)

    async def delete(self, locators: Sequence[str]) -> None:
        """Never a file of the journal."""
        await self._segments.delete([one for one in locators if not self._journal.holds(one)])

    async def close(self) -> None:
        return None
