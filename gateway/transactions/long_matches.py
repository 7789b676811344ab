"""Transactional ids that are so long for a pattern that a match could hold the event loop.

Anybody may make such an id, and a pattern of an operator must list the others all the same. RE2 releases
Python's lock while it matches, so these are matched in a thread: one at a time for all requests, in the order
in which they come, so that many requests take one processor and one thread of the executor.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from gateway.regex import InvalidPattern, Pattern
from ledger.transactions.state import Transaction

MAX_REQUEST_S: Final = 5.0
"""All such matches of a request together. Nearly always one takes less than 0.1 ms."""


class LongMatches:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def matching(self, pattern: Pattern, transactions: Sequence[Transaction]) -> list[Transaction]:
        """Those whose ids match. InvalidPattern if that takes longer than `MAX_REQUEST_S`."""
        found, loop, used_s = list[Transaction](), asyncio.get_running_loop(), 0.0
        for transaction in transactions:
            await self._turn.acquire()
            began = loop.time()
            matched = loop.run_in_executor(None, pattern.matches, transaction.transactional_id)
            # Also if this request is cancelled, the turn lasts until the thread is free.
            matched.add_done_callback(lambda _: self._turn.release())
            if await asyncio.shield(matched):
                found.append(transaction)
            used_s += loop.time() - began
            if used_s > MAX_REQUEST_S:
                raise InvalidPattern(f"too large for {len(transactions)} long transactional ids")
        return found
