"""Drafts that are appended with the journal entry that numbers them.

Such a draft is submitted before it is known what is in it: the owner of the shard takes the batches when it
fills the entry (`ledger.partitions.requests.DraftSource`). So batches that arrive while the entry before is
being written go into the next one, and none of them passes a task, or a queue but the accumulator, on its way
into the journal.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.coordination.free_space import DiskFull, FreeSpace
from gateway.coordination.ledger import Ledger
from gateway.produce.accumulator import Accumulator
from gateway.produce.commits import commit_batches, draft_batches, transactions_of
from gateway.produce.drafts import Draft
from ledger.partitions.requests import (
    CommitDraft,
    CommitPlaced,
    Committed,
    FileCommit,
    ProducerKey,
    transactions_weight,
)
from ledger.requests import LedgerResult
from ledger.types import Buffer, DraftBatch, Placement


class WrittenBatches(Protocol):
    """Gets every batch that is about to be committed (the cache of the fetch service)."""

    def put(self, locator: str, start: int, data: Buffer) -> None: ...

    def discard_written(self, locator: str, start: int) -> None:
        """It was not committed, and another one may come to be there. Nothing happens if it is not held."""
        ...


class DraftKeeper(Protocol):
    """What the produce service does for drafts that are placed."""

    def next_draft(self) -> Draft | None:
        """The batches that wait, as the next draft; None if their requests are all done by now."""
        ...

    def first_sequences(self, draft: Draft, *, is_placed: bool) -> Mapping[ProducerKey, int] | None:
        """The draft is being handed over: as `CommitFile.first_sequences`."""
        ...

    def handed_over(self, draft: Draft) -> None:
        """The next one may follow."""
        ...

    def store(self, draft: Draft) -> None:
        """Into the segment store, as the journal does not take it."""
        ...

    def end_placed(self, draft: Draft, outcome: FileCommit | Exception) -> None:
        """Complete its batches."""
        ...

    def fail_waiting(self, error: Exception) -> None:
        """Fail the next draft of what waits: it was not taken."""
        ...


class PlacedDrafts:
    """Those of one produce service: one that waits for its entry, and those whose entry is under way."""

    def __init__(
        self,
        shard: Ledger,
        accumulator: Accumulator,
        space: FreeSpace,
        written: WrittenBatches | None,
        keeper: DraftKeeper,
    ) -> None:
        self.accumulator = accumulator
        self.space = space
        self.written = written
        self.keeper = keeper
        self.waiting: DraftToPlace | None = None
        """Submitted, and not taken: what arrives goes into it."""
        self.under_way: dict[DraftToPlace, Draft] = {}
        """Taken, and without a result."""
        self._shard = shard
        self._idle: asyncio.Future[None] | None = None

    def may_submit(self) -> bool:
        """Whether the journal takes what waits, going by its number and size."""
        size = min(self.accumulator.waiting_bytes, self.accumulator.draft_bytes)
        return self._shard.takes(self.accumulator.next_batches, size)

    def submit(self) -> None:
        self.waiting = DraftToPlace(self)
        self._shard.submit_for(self.waiting, CommitDraft(self.waiting))

    def withdraw(self) -> None:
        """What waits goes elsewhere: nothing of it is taken for an entry."""
        if self.waiting is not None:
            self.waiting.withdraw()
            self.waiting = None

    async def wait_for_end(self, timeout_s: float) -> None:
        """Until none of them is under way or waits, or longer than `timeout_s`."""
        if self.waiting is None and not self.under_way:
            return
        self._idle = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._idle], timeout=timeout_s)
        self._idle = None

    def abandon(self) -> Sequence[Draft]:
        """No result is wanted any more. Returns the drafts whose outcome is unknown."""
        self.withdraw()
        unknown = list(self.under_way.values())
        for to_place in self.under_way:
            to_place.withdraw()
        self.under_way.clear()
        return unknown

    def taken(self, to_place: "DraftToPlace") -> Draft | None:
        """Its entry is being filled."""
        self.waiting = None
        draft = self.keeper.next_draft()
        if draft is not None:
            self.under_way[to_place] = draft
        self._note_idle()
        return draft

    def not_placed(self, to_place: "DraftToPlace") -> None:
        self.keeper.store(self.under_way.pop(to_place))
        self._note_idle()

    def ended(self, to_place: "DraftToPlace", outcome: FileCommit | Exception) -> None:
        self.keeper.end_placed(self.under_way.pop(to_place), outcome)
        self._note_idle()

    def failed_waiting(self, to_place: "DraftToPlace", error: Exception) -> None:
        """It was not taken, and will not be."""
        if self.waiting is to_place:
            self.waiting = None
            self.keeper.fail_waiting(error)
            self._note_idle()

    def _note_idle(self) -> None:
        if self._idle is not None and self.waiting is None and not self.under_way and not self._idle.done():
            self._idle.set_result(None)


class DraftToPlace:
    """One draft on its way into an entry: the source of its batches, and the completion of its commit."""

    __slots__ = ("_draft", "_drafts", "_is_done", "_placement", "_writing_bytes")

    def __init__(self, drafts: PlacedDrafts) -> None:
        self._drafts = drafts
        self._draft: Draft | None = None
        """Once it was taken."""
        self._placement: Placement | None = None
        self._writing_bytes = 0
        """Of the free space, what it was accepted with and has not ended."""
        self._is_done = False

    def withdraw(self) -> None:
        """It is not taken, or its result is not wanted any more."""
        self._is_done = True
        size, self._writing_bytes = self._writing_bytes, 0
        if size:
            self._drafts.space.end_writing(size)

    # As a source of batches

    @property
    def batches(self) -> int:
        return self._drafts.accumulator.next_batches

    def take(self) -> Sequence[DraftBatch]:
        draft = self._draft = self._drafts.taken(self)
        if draft is None:
            self.withdraw()
            return ()
        try:
            self._writing_bytes = self._drafts.space.begin_writing(draft.size)
        except DiskFull as error:
            # Responses go out in an iteration of their own: an entry is being filled.
            asyncio.get_running_loop().call_soon(self.set_exception, error)
            return ()
        return draft_batches(draft.batches)

    @property
    def transactions_weight(self) -> int:
        if self._draft is None:
            return 0
        transactions = transactions_of(self._draft.batches, range(len(self._draft.batches)))
        return transactions_weight(transactions, len(self._draft.batches))

    def not_placed(self) -> None:
        self.withdraw()
        self._drafts.not_placed(self)

    def placed(self, placement: Placement) -> CommitPlaced:
        assert self._draft is not None
        self._placement = placement
        first_sequences = self._drafts.keeper.first_sequences(self._draft, is_placed=True)
        batches = commit_batches(self._draft.batches, placement)
        transactions = transactions_of(self._draft.batches, placement.starts)
        return CommitPlaced(placement.locator, placement.object_bytes, batches, first_sequences, transactions)

    def decided(self, result: FileCommit) -> None:
        assert self._draft is not None and self._placement is not None
        if self._drafts.written is not None:
            self._cache(self._drafts.written, self._draft, self._placement, result)
        self._drafts.keeper.handed_over(self._draft)

    # As a completion

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: LedgerResult, /) -> None:
        assert isinstance(result, FileCommit)
        self.withdraw()
        self._drafts.ended(self, result)

    def set_exception(self, error: Exception, /) -> None:
        if self._is_done:
            return
        self.withdraw()
        if self._draft is None:
            # Perhaps within the call that submitted it.
            asyncio.get_running_loop().call_soon(self._drafts.failed_waiting, self, error)
            return
        self._discard()
        self._drafts.ended(self, error)

    def _cache(self, written: WrittenBatches, draft: Draft, placement: Placement, result: FileCommit) -> None:
        """A fetch may plan its batches in the iteration in which the entry is applied. Those that were
        refused, or are there already, are in no run."""
        for pending, start, one in zip(draft.batches, placement.starts, result.results, strict=True):
            if isinstance(one, Committed) and not one.duplicate:
                written.put(placement.locator, start, pending.data)

    def _discard(self) -> None:
        """Other batches may come to be where these were to be."""
        written, placement = self._drafts.written, self._placement
        if written is not None and placement is not None:
            for start in placement.starts:
                written.discard_written(placement.locator, start)
