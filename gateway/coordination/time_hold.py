"""Nothing is deleted for what a jump ahead of entry time adds to its age, while that jump is in doubt.

Retention by time, the orphan floor, and the expiry of producers and offsets would believe a clock that is
wrong, and what they delete is gone. So they leave out a jump of more than an hour until a clock that is not
the gateway's own, or an operator, has confirmed the time, or a day has passed. The journal knows the jumps,
so that their day goes on through restarts. See docs/decisions/0034.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from gateway.coordination.clock import SteadyClock, time_text
from gateway.coordination.ledger import Ledger
from ledger.cluster.owners import HOLD_MS, Owners
from ledger.cluster.requests import HoldTime
from ledger.requests import Done

log = structlog.get_logger(__name__)

WAIT_S: Final = 10.0
FOREVER_MS: Final = 1 << 62
"""Older than anything: in doubt by this, nothing is deleted for its age."""
HOUR_MS: Final = 60 * 60 * 1000


class TimeHold:
    def __init__(self, shard: Ledger, clock: SteadyClock, right_until_ms: Callable[[], int]) -> None:
        """Times up to `right_until_ms` are confirmed."""
        self._shard = shard
        self._clock = clock
        self._right_until_ms = right_until_ms
        self._stepped_ms = clock.stepped_ms
        """What the clock has jumped ahead, as far as it is journaled or confirmed."""
        self._until_ms = 0
        """For a ledger whose feature level cannot have it journaled."""

    @property
    def is_held(self) -> bool:
        return self.doubted_ms() > 0

    @property
    def until_ms(self) -> int:
        """Entry time up to which the newest jump that is known to the journal is in doubt."""
        return max(self._until_ms, self._owners.doubted_until_ms)

    def doubted_ms(self) -> int:
        """By how much anything may be younger than entry times and clock say; FOREVER_MS if nobody knows. To
        be read after the clock, which may jump with each reading."""
        now_ms = self._now_ms()
        if now_ms < max(self._until_ms, self._owners.held_until_ms):
            return FOREVER_MS
        # The step may have been made by this reading.
        return self._clock.stepped_ms - self._stepped_ms + self._owners.doubted_ms(now_ms)

    async def check(self) -> None:
        """For the owner: journal what is new. Errors: StoreError, TimeoutError."""
        now_ms = self._now_ms()
        right_until_ms, stepped_ms = self._right_until_ms(), self._clock.stepped_ms
        if self.until_ms and self.until_ms - HOLD_MS <= right_until_ms:
            await self._journal(HoldTime(0))
            log.warning("clock.time_confirmed", until=time_text(right_until_ms))
        if stepped_ms > self._stepped_ms:
            if now_ms > right_until_ms:
                await self._journal(HoldTime(now_ms + HOLD_MS, stepped_ms - self._stepped_ms))
            self._stepped_ms = stepped_ms

    async def _journal(self, request: HoldTime) -> None:
        result = await self._shard.ask(request, asyncio.get_running_loop().time() + WAIT_S)
        is_journaled = isinstance(result, Done) and result.count > 0
        self._until_ms = 0 if is_journaled else request.until_ms

    @property
    def _owners(self) -> Owners:
        return self._shard.state.part(Owners)

    def _now_ms(self) -> int:
        return max(self._clock(), self._shard.now_ms())

    def warnings(self) -> dict[str, str]:
        doubted_ms = self.doubted_ms()
        if not doubted_ms:
            return {}
        jumped_ms = max(self.until_ms - HOLD_MS, 0) or self._clock()
        effect = (
            "nothing is deleted for its age"
            if doubted_ms == FOREVER_MS
            else f"what is deleted for its age is older by {doubted_ms / HOUR_MS:.1f} h than it has to be"
        )
        return {
            "time_held": "entry time has jumped ahead by more than an hour, to "
            f"{time_text(jumped_ms)}: {effect} before "
            f"{time_text(jumped_ms + HOLD_MS)}. If that time is right, start the gateway with "
            f"ledger.time_is_right_until={time_text(jumped_ms + 1_000)}; if it is not, set the clock right"
        }
