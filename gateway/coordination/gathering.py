"""How long an entry of the journal waits for company.

Clients that commit one at a time ask again as soon as they are told. An entry that is filled with whoever of
them comes first leaves the others to the next, and each entry costs a sync and two hand-overs to the store's
thread. So the next entry waits, for a fraction of a millisecond, until as many have come as were told by the
last. Where they do not come back that is soon tried no more, and then rarely (docs/decisions/0010).
"""

import asyncio
from typing import Final

import structlog

from gateway.coordination.brief import BriefTimer

log = structlog.get_logger(__name__)

GATHER_S: Final = 0.0003
RECENT_S: Final = 0.002
"""Who was told longer ago is not waited for. The loop clock counts in whole milliseconds."""
MOST_SKIPPED: Final = 255


class Gathering:
    """Waits for those who were told. For the one task that fills entries."""

    def __init__(self, longest_s: float = GATHER_S) -> None:
        """With 0 nobody is waited for."""
        self._longest_s = longest_s
        self._timer: BriefTimer | None = None
        self._is_possible = longest_s > 0
        self._waiter: asyncio.Future[None] | None = None
        self._told = self._missing = 0
        """How many the last entry told, and how many more of them than have come since."""
        self._told_at = 0.0
        self._must_hurry = False
        self._skip = self._skipped = 0
        """How many entries are filled at once before this is tried again, and how many have been."""

    def told(self, count: int, now: float) -> None:
        """So many are being told who may ask again at once. `now` is loop time."""
        self._told = self._missing = count
        self._told_at = now

    def came(self) -> None:
        """One more asks."""
        self._missing -= 1
        if not self._missing:
            self._end()

    def hurry(self) -> None:
        """Somebody asks who has waited for company already."""
        self._must_hurry = True
        self._end()

    async def gather(self, now: float) -> None:
        """To be called when somebody asks: returns when as many ask as were told, or soon."""
        must_hurry, self._must_hurry = self._must_hurry, False
        is_needed = self._missing > 0 and now - self._told_at <= RECENT_S and not must_hurry
        if not is_needed or not self._is_worth_it() or not self._has_timer():
            return
        assert self._timer is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._timer.arm()
        try:
            await self._waiter
        finally:
            self._timer.disarm()
            self._waiter = None
            self._must_hurry = False
        came_again = 2 * self._missing <= self._told
        self._skip = 0 if came_again else min(2 * self._skip + 1, MOST_SKIPPED)

    def close(self) -> None:
        """Wait no more. Idempotent."""
        self._is_possible = False
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.close()

    def _is_worth_it(self) -> bool:
        if self._skipped < self._skip:
            self._skipped += 1
            return False
        self._skipped = 0
        return True

    def _has_timer(self) -> bool:
        if self._timer is None and self._is_possible:
            try:
                self._timer = BriefTimer(self._longest_s, self._end)
            except OSError as error:
                # Entries are smaller then, and nothing else.
                self._is_possible = False
                log.warning("journal.cannot_gather", error=str(error))
        return self._timer is not None

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
