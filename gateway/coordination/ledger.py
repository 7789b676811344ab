"""What services know of a shard: its durable state, and how to change it, whichever gateway owns it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from gateway.completion import Completion
from ledger.partitions.state import PartitionLog
from ledger.requests import LedgerResult, Request
from ledger.state import LedgerState

Subscriber: TypeAlias = Callable[[Sequence[PartitionLog]], None]
"""Called with the partitions that an applied entry touched."""


class Ledger(Protocol):
    @property
    def state(self) -> LedgerState:
        """Durable, and may be read at any time on the event loop. Read it from here each time: a later entry
        may change another object."""
        ...

    @property
    def why_not(self) -> str:
        """Why no request is accepted at present; empty if they are."""
        ...

    @property
    def is_exclusive(self) -> bool:
        """Whether this process alone can write the journal. If not, whatever is returned without an entry
        follows a barrier: another gateway may have gone on."""
        ...

    def takes(self, batches: int, size: int) -> bool:
        """Whether a draft of this many batches and bytes may be submitted with them now (`CommitDraft`). A
        hint, as `Journal.takes` is."""
        ...

    def now_ms(self) -> int:
        """The time of the next entry, of keys, and of all ages that are counted from entries: never before
        the last entry, whatever the clock says."""
        ...

    def submit(self, request: Request) -> asyncio.Future[LedgerResult]:
        """Queue a request; requests are decided in the order of this call. The future raises
        StoreUnavailable for certain failure; until it is done the outcome is unknown."""
        ...

    def submit_for(self, completion: Completion[LedgerResult], request: Request) -> None:
        """The same for a caller that needs no future. What fails at once completes before this returns."""
        ...

    async def ask(self, request: Request, deadline: float) -> LedgerResult:
        """Submit and wait. `deadline` is loop time; TimeoutError means that the outcome is unknown."""
        ...

    async def barrier(self, deadline: float) -> None:
        """Linearizable read: return once everything is applied here that was durable when this was called.
        StoreUnavailable if that cannot be known, TimeoutError at the deadline (loop time)."""
        ...

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Be called after each applied entry. Returns the undo."""
        ...
