"""Transactional ids that are so long for a pattern that a match could hold the event loop.

Anybody may make such an id, and a pattern of an operator must list the others all the same. RE2 releases
Python's lock while it matches, so these are matched in a thread: one at a time for all requests, in the order
in which they come, so that many requests take one processor and one thread of the executor. What a match
takes is measured there: until the event loop hears of it may take longer than the match.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from gateway.host import cpu_s
from gateway.regex import InvalidPattern, Pattern
from ledger.transactions.state import Transaction

MAX_REQUEST_S: Final = 5.0
"""CPU time of all such matches of a request together. Nearly always one takes less than 0.1 ms."""
TURN_S: Final = 0.05
"""How long a request matches before others have their turn."""


class LongMatches:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def matching(self, pattern: Pattern, transactions: Sequence[Transaction]) -> list[Transaction]:
        """Those whose ids match. InvalidPattern if that takes longer than `MAX_REQUEST_S`."""
        names = [transaction.transactional_id for transaction in transactions]
        found, loop, used_s, at = list[Transaction](), asyncio.get_running_loop(), 0.0, 0
        while at < len(names):
            await self._turn.acquire()
            matched = loop.run_in_executor(None, _matches, pattern, names, at)
            # Also if this request is cancelled, the turn lasts until the thread is free.
            matched.add_done_callback(lambda _: self._turn.release())
            matching, at, took_s = await asyncio.shield(matched)
            found += [transactions[index] for index in matching]
            used_s += took_s
            if used_s > MAX_REQUEST_S:
                raise InvalidPattern(f"too large for {len(transactions)} long transactional ids")
        return found


def _matches(pattern: Pattern, names: Sequence[str], at: int) -> tuple[list[int], int, float]:
    """Which of the names from there on match, where to go on, and the CPU time that it took."""
    matching, began, took_s = list[int](), cpu_s(), 0.0
    while at < len(names) and took_s < TURN_S:
        if pattern.matches(names[at]):
            matching.append(at)
        at += 1
        took_s = cpu_s() - began
    return matching, at, took_s
