"""Commit delay (cf. PostgreSQL's `commit_delay`): how long the next journal entry waits for clients that were
just answered.

A client that commits one thing at a time sends its next request as soon as it has the response. An entry that
is filled at the first of these requests leaves the others to the next entry, and each entry costs a sync and
two hand-overs to the store's thread. So the next entry waits, for a fraction of a millisecond, until as many
requests have arrived as results were returned by the last one. Where the clients do not come back in time,
waiting is skipped for a growing number of entries (docs/decisions/0010).
"""

import asyncio
from typing import Final

import structlog

from gateway.timers.timerfd import NewTimer, Timer, TimerFd

log = structlog.get_logger(__name__)

COMMIT_DELAY_S: Final = 0.0003
RECENT_S: Final = 0.002
"""A client that was answered longer ago is not expected any more. The loop clock counts in whole
milliseconds."""
MAX_SKIPPED: Final = 255


class CommitDelay:
    """For the one task that fills entries."""

    def __init__(self, delay_s: float = COMMIT_DELAY_S, timer: NewTimer = TimerFd) -> None:
        """With 0 no entry waits. `timer` makes what wakes the one that does."""
        self._delay_s = delay_s
        self._new_timer = timer
        self._timer: Timer | None = None
        self._is_possible = delay_s > 0
        self._waiter: asyncio.Future[None] | None = None
        self._expected = self._missing = 0
        """Requests that may follow the results of the last entry, and how many of them have not arrived."""
        self._expected_at = 0.0
        self._must_skip = False
        self._skip = self._skipped = 0
        """How many entries are filled at once before the next wait, and how many have been."""

    def expect(self, count: int, now: float) -> None:
        """`count` results are being returned, whose clients may send the next request at once. `now` is loop
        time."""
        self._expected = self._missing = count
        self._expected_at = now

    def arrived(self) -> None:
        """One more request waits for the entry."""
        self._missing -= 1
        if not self._missing:
            self._end()

    def skip(self) -> None:
        """End this wait, or do not begin the next one: a request waits that has waited already."""
        self._must_skip = True
        self._end()

    def begin(self) -> None:
        """The entry is begun without a wait, as `skip` has said of a request in it."""
        self._must_skip = False

    async def wait(self, now: float) -> None:
        """Call this when a request waits. Returns when all expected requests have arrived, at the latest
        after the delay."""
        must_skip, self._must_skip = self._must_skip, False
        is_needed = self._missing > 0 and now - self._expected_at <= RECENT_S and not must_skip
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
            self._must_skip = False
        half_arrived = 2 * self._missing <= self._expected
        self._skip = 0 if half_arrived else min(2 * self._skip + 1, MAX_SKIPPED)

    def close(self) -> None:
        """No entry waits any more. Idempotent."""
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
                self._timer = self._new_timer(self._delay_s, self._end)
            except OSError as error:
                # Entries are smaller then, and nothing else.
                self._is_possible = False
                log.warning("journal.cannot_gather", error=str(error))
        return self._timer is not None

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
