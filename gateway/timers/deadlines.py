"""Deadlines of requests that are nearly always completed long before: one timer for a tenth of a second, not
one for each request."""

import asyncio
from typing import Any, Final

from gateway.completion import Completion

TICKS_A_SECOND: Final = 10


class Deadlines:
    """Fails the completions that are still here at their deadline, at most a tick after it."""

    def __init__(self) -> None:
        self._pending: dict[int, dict[Completion[Any], None]] = {}
        self._timers: dict[int, asyncio.Handle] = {}

    def add(self, deadline: float, completion: Completion[Any]) -> int:
        """Set a TimeoutError at `deadline` (loop time), unless the completion is removed before from the tick
        that this returns."""
        tick = int(deadline * TICKS_A_SECOND) + 1
        of_tick = self._pending.get(tick)
        if of_tick is None:
            of_tick = self._pending[tick] = {}
            loop = asyncio.get_running_loop()
            self._timers[tick] = loop.call_at(tick / TICKS_A_SECOND, self._expire, tick)
        of_tick[completion] = None
        return tick

    def remove(self, tick: int, completion: Completion[Any]) -> None:
        """It is complete. Removing one that is not here is no error."""
        of_tick = self._pending.get(tick)
        if of_tick is not None:
            of_tick.pop(completion, None)

    def close(self) -> None:
        """No deadline is due any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._pending.clear()

    def _expire(self, tick: int) -> None:
        del self._timers[tick]
        of_tick = self._pending[tick]
        try:
            for completion in list(of_tick):
                # Unless one before it has removed it.
                if completion in of_tick:
                    del of_tick[completion]
                    completion.set_exception(TimeoutError())
        finally:
            # One that was added meanwhile, or comes after one that raised, is not forgotten.
            if of_tick:
                self._timers[tick] = asyncio.get_running_loop().call_soon(self._expire, tick)
            else:
                del self._pending[tick]
