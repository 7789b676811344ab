"""The entry that an owner is filling: what goes into it, and whose results wait for it."""

import asyncio
from collections.abc import Sequence

import msgspec

from gateway.completion import Completion
from ledger.journal import HEAD_BYTES, MAX_ENTRY_BYTES
from ledger.keys import is_inline
from ledger.overlay import Overlay
from ledger.partitions.requests import CommitDraft, DraftSource, placed_weight
from ledger.registry import REGISTRY
from ledger.requests import LedgerResult, Request
from ledger.types import DraftBatch, Placement


class Filling(msgspec.Struct):
    """The entry that is being filled."""

    number: int
    time_ms: int
    overlay: Overlay
    max_batches: int
    is_first: bool
    """Whether all entries before it are applied."""
    records: list[bytes] = msgspec.field(default_factory=list)
    batches: Sequence[DraftBatch] = ()
    """Of the draft that is appended with it: at most one."""
    inline_bytes: int = 0
    """How much of the entry they are."""
    may_have_batches: bool = True
    results: list[tuple[Completion[LedgerResult], LedgerResult]] = msgspec.field(default_factory=list)
    size: int = HEAD_BYTES
    work: int = 0
    files: int = 0
    """Of the results, how many are of committed files."""
    may_overlap: bool = True
    """Whether the next entry may be decided before this one is applied."""
    is_needed: bool = False
    """Written also without a record."""
    began_at: float = msgspec.field(default_factory=lambda: asyncio.get_running_loop().time())

    def takes(self, request: Request) -> bool:
        if type(request) is CommitDraft and (self.batches or not self.may_have_batches):
            return False
        may_overlap = type(request) in REGISTRY.overlapping
        return self.has_capacity(request) and (may_overlap or self.is_first)

    def has_capacity(self, request: Request) -> bool:
        if not self.records:
            return True
        fits = self.size + request.weight <= MAX_ENTRY_BYTES
        return fits and self.work + request.work <= self.max_batches

    def has_space(self, placement: Placement, batches: Sequence[DraftBatch], source: DraftSource) -> bool:
        """Whether batches that were taken of a source fit, with what the entry has to say of them."""
        if not self.records:
            return True
        needed = placed_weight(len(batches)) + inline_bytes(placement, batches)
        return self.size + needed + source.transactions_weight <= MAX_ENTRY_BYTES

    def fail(self, error: Exception) -> None:
        """Fail every request of the entry. The entry forgets them: the error keeps frames alive that hold it,
        and waiting requests hold their drafts."""
        results, self.results = self.results, []
        fail_all(results, error)


def inline_bytes(placement: Placement, batches: Sequence[DraftBatch]) -> int:
    """How much of the entry these batches take."""
    return sum([len(batch.data) for batch in batches]) if is_inline(placement.locator) else 0


def fail_all(
    waiting: Sequence[tuple[Completion[LedgerResult], LedgerResult | None]], error: Exception
) -> None:
    for completion, _ in waiting:
        if not completion.done():
            completion.set_exception(error)
