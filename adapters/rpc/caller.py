"""How long calls are tried, how many may wait, and that they end before their store is closed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from adapters.rpc.failures import CallFailed, Meaning
from ledger.errors import StoreError, StoreUnavailable

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.2
"""Between rounds through all endpoints."""
SHORTEST_ATTEMPT_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    call_s: float = 10.0
    """Of a call, on however many endpoints it is tried."""
    attempt_s: float = 5.0
    """Of one attempt."""
    connect_s: float = 3.0
    patience_s: float = 2.0
    """How long an endpoint is looked for that can be reached: some restart faster than that."""
    max_waiting: int = 4096
    """Calls at a time."""

    def left_s(self, until: float) -> float:
        """Of one attempt of a call that ends then (loop time)."""
        left = until - asyncio.get_running_loop().time()
        return max(min(left, self.attempt_s), SHORTEST_ATTEMPT_S)


class Caller:
    """Of one store. A call whose outcome is unknown is made again only if it changes nothing."""

    def __init__(
        self, store: str, limits: Limits, endpoints: int, error_of: Callable[[CallFailed], StoreError]
    ) -> None:
        self._store = store
        self._limits = limits
        self._endpoints = endpoints
        self._error_of = error_of
        self._under_way = 0
        self._ended: asyncio.Future[None] | None = None
        self._is_closed = False

    async def until_answered(self, attempt: Callable[[float], Awaitable[T]], *, writes: bool) -> T:
        """The result of `attempt`, which is called with the loop time at which the call ends, and raises
        CallFailed. StoreUnavailable: it certainly had no effect. OutcomeUnknown: it may have had one."""
        if self._is_closed:
            raise StoreUnavailable(f"{self._store} is closed")
        if self._under_way >= (limit := self._limits.max_waiting):
            raise StoreUnavailable(f"{self._store} is too slow: {limit} calls wait for it; try again")
        self._under_way += 1
        try:
            return await self._repeated(attempt, writes)
        finally:
            self._under_way -= 1
            if not self._under_way and self._ended is not None:
                if not self._ended.done():
                    self._ended.set_result(None)
                self._ended = None

    async def close(self) -> bool:
        """Accept no more calls, and return when those under way have ended. False if it was closed before."""
        if self._is_closed:
            return False
        self._is_closed = True
        if self._under_way:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended
        return True

    async def _repeated(self, attempt: Callable[[float], Awaitable[T]], writes: bool) -> T:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        attempts, pause_s = 0, FIRST_PAUSE_S
        while True:
            try:
                return await attempt(begun + self._limits.call_s)
            except CallFailed as failed:
                if not _is_repeatable(failed.meaning, writes):
                    raise self._error_of(failed) from failed
                attempts += 1
                was_sent = failed.meaning is not Meaning.NOT_SENT
                limit_s = self._limits.call_s if was_sent else self._limits.patience_s
                if attempts >= self._endpoints and loop.time() - begun >= limit_s:
                    raise StoreUnavailable(str(failed)) from failed
            if attempts % self._endpoints == 0:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _is_repeatable(meaning: Meaning, writes: bool) -> bool:
    return meaning is Meaning.NOT_SENT or (meaning is Meaning.UNKNOWN and not writes)
