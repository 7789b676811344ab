"""Nothing is deleted for its age while entry time is in doubt: after a jump ahead of more than an hour.

Retention by time, the orphan floor, and the expiry of producers and offsets would believe a clock that is
wrong, and what they delete is gone. So they wait until a clock that is not the gateway's own, or an operator,
has confirmed the time, or a day has passed. See docs/decisions/0034.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from gateway.coordination.clock import SteadyClock, time_text
from gateway.coordination.ledger import Ledger
from ledger.cluster.decide import HOLD_MS
from ledger.cluster.owners import Owners
from ledger.cluster.requests import HoldTime

log = structlog.get_logger(__name__)

WAIT_S: Final = 10.0


class TimeHold:
    def __init__(self, shard: Ledger, clock: SteadyClock, right_until_ms: Callable[[], int]) -> None:
        """Times up to `right_until_ms` are confirmed."""
        self._shard = shard
        self._clock = clock
        self._right_until_ms = right_until_ms
        self._steps = clock.steps
        """Of the clock that are journaled, or confirmed."""
        self._until_ms = 0
        """For a ledger whose feature level cannot have it journaled."""

    @property
    def until_ms(self) -> int:
        """Entry time up to which nothing is deleted for its age."""
        return max(self._until_ms, self._shard.state.part(Owners).held_until_ms)

    @property
    def is_held(self) -> bool:
        now_ms = max(self._clock(), self._shard.now_ms())
        # The step may have been made by this reading.
        return self._clock.steps > self._steps or now_ms < self.until_ms

    async def check(self) -> None:
        """For the owner: journal what is new. Errors: StoreError, TimeoutError."""
        now_ms = max(self._clock(), self._shard.now_ms())
        right_until_ms, steps = self._right_until_ms(), self._clock.steps
        if self.until_ms and self.until_ms - HOLD_MS <= right_until_ms:
            await self._journal(0)
            log.warning("clock.time_confirmed", until=time_text(right_until_ms))
        if steps > self._steps:
            if now_ms > right_until_ms:
                await self._journal(now_ms + HOLD_MS)
            self._steps = steps

    async def _journal(self, until_ms: int) -> None:
        await self._shard.ask(HoldTime(until_ms), asyncio.get_running_loop().time() + WAIT_S)
        self._until_ms = until_ms

    def warnings(self) -> dict[str, str]:
        if not self.is_held:
            return {}
        jumped_ms = max(self.until_ms - HOLD_MS, 0) or self._clock()
        return {
            "time_held": "entry time has jumped ahead by more than an hour, to "
            f"{time_text(jumped_ms)}: nothing is deleted for its age before "
            f"{time_text(jumped_ms + HOLD_MS)}. If that time is right, start the gateway with "
            f"ledger.time_is_right_until={time_text(jumped_ms + 1_000)}; if it is not, set the clock right"
        }
