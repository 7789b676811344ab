"""Figures of all transactional ids, counted in slices of the event loop before a page shows them."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from ledger.state import LedgerState
from ledger.transactions.state import Status, Transactions

SLICE: Final = 5_000
"""Ids that are counted in one iteration of the event loop."""


class TransactionTotals:
    """As of the last `count`."""

    def __init__(self, state: Callable[[], LedgerState], now_ms: Callable[[], int]) -> None:
        """`now_ms`: entry time."""
        self._state = state
        self._now_ms = now_ms
        self.by_state: dict[str, int] = {}
        self.oldest_ms = 0
        """For how long the oldest open transaction has been open; 0 if there is none."""

    async def count(self) -> None:
        """Count again. May be called by several callers at once."""
        transactions = self._state().part(Transactions)
        known = list(transactions.by_id.values())
        states, first_ms = Counter[str](), self._now_ms()
        for start in range(0, len(known), SLICE):
            if start:
                await asyncio.sleep(0)
            part = known[start : start + SLICE]
            states.update([transaction.status for transaction in part])
            started = [transaction.started_ms for transaction in part if transaction.is_open]
            first_ms = min([first_ms, *started])
        self.by_state = {state: states[state] for state in Status}
        self.oldest_ms = max(self._now_ms() - first_ms, 0) if states[Status.ONGOING] else 0

    @property
    def open(self) -> int:
        """At this moment."""
        return len(self._state().part(Transactions).open)
