"""The clock of a store beside the gateway's own, where the store tells its time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from gateway.coordination.clock import time_text
from ledger.errors import StoreError

log = structlog.get_logger(__name__)

TOLERATED_MS: Final = 60_000
LOOK_S: Final = 600.0
DEADLINE_S: Final = 10.0
SECOND_MS: Final = 1_000
"""Stores tell their time to the second."""

StoreTime = Callable[[], Awaitable[int | None]]
"""Unix ms; None if no store tells its time. Errors: StoreError."""


class StoreClock:
    def __init__(self, store_time: StoreTime, clock: Callable[[], int]) -> None:
        """`clock`: unix ms of the gateway."""
        self._store_time = store_time
        self._clock = clock
        self._ahead_ms = 0
        """How far the gateway is ahead of the store, at least; negative: behind."""
        self._seen_ms: int | None = None
        """Of the store, when it was looked at last."""
        self._looked_ms = 0
        """Of the gateway, at that moment."""

    @property
    def right_until_ms(self) -> int:
        """Times up to this are right by the store's clock, with what is tolerated. It stands still between
        two looks, as the gateway's clock may have been set since. 0, none: the store tells no time, or the
        gateway is ahead of it. Then what was a jump is no less of one when the store's clock gets there."""
        if self._seen_ms is None or self._ahead_ms > TOLERATED_MS:
            return 0
        return self._seen_ms + TOLERATED_MS

    async def look(self) -> None:
        """A store that cannot be asked has said nothing new."""
        began_ms = self._clock()
        try:
            async with asyncio.timeout(DEADLINE_S):
                seen_ms = await self._store_time()
        except (StoreError, TimeoutError) as error:
            log.info("clock.store_not_seen", reason=str(error))
            return
        ended_ms = self._clock()
        self._seen_ms, self._looked_ms = seen_ms, ended_ms
        if seen_ms is None:
            return
        # The store looked at its clock at some moment of the request.
        if began_ms > seen_ms + SECOND_MS:
            self._ahead_ms = began_ms - seen_ms - SECOND_MS
        else:
            self._ahead_ms = min(0, ended_ms - seen_ms)

    def warnings(self) -> dict[str, str]:
        if self._seen_ms is None or abs(self._ahead_ms) <= TOLERATED_MS:
            return {}
        return {
            "clock_differs": f"the clock of this host said {time_text(self._looked_ms)} when that of the "
            f"store said {time_text(self._seen_ms)}: set it right, for example by NTP"
        }
