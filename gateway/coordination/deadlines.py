"""Deadlines of requests that are nearly always answered long before: a timer for a tenth of a second, not for
each of them."""

import asyncio
from typing import Final, Protocol

TICKS_A_SECOND: Final = 10


class Expiring(Protocol):
    def expire(self) -> None:
        """The deadline has passed."""
        ...


class Deadlines:
    """Expires who still waits, at most a tick after the deadline."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Expiring, None]] = {}
        self._timers: dict[int, asyncio.Handle] = {}

    def add(self, deadline: float, waiting: Expiring) -> int:
        """Expire `waiting` at `deadline` (loop time), unless it leaves the tick that this returns before."""
        tick = int(deadline * TICKS_A_SECOND) + 1
        of_tick = self._waiting.get(tick)
        if of_tick is None:
            of_tick = self._waiting[tick] = {}
            loop = asyncio.get_running_loop()
            self._timers[tick] = loop.call_at(tick / TICKS_A_SECOND, self._expire, tick)
        of_tick[waiting] = None
        return tick

    def leave(self, tick: int, waiting: Expiring) -> None:
        """It waits no longer, if it ever did."""
        of_tick = self._waiting.get(tick)
        if of_tick is not None:
            of_tick.pop(waiting, None)

    def close(self) -> None:
        """Nobody waits any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()

    def _expire(self, tick: int) -> None:
        del self._timers[tick]
        of_tick = self._waiting[tick]
        try:
            for waiting in list(of_tick):
                # Unless one before it has let it go.
                if waiting in of_tick:
                    del of_tick[waiting]
                    waiting.expire()
        finally:
            # Who came meanwhile, or behind one that failed, is not forgotten.
            if of_tick:
                self._timers[tick] = asyncio.get_running_loop().call_soon(self._expire, tick)
            else:
                del self._waiting[tick]
