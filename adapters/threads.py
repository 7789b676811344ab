"""Blocking calls off the event loop: a bounded pool of threads, and a deadline for every call."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from ledger.errors import OutcomeUnknown, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_S = 30.0
OPEN_DEADLINE_S = 300.0
MAX_WAITING = 4096


class Overdue(OutcomeUnknown):
    """The call did not end before its deadline; it may still have its effect."""


class StoreThreads:
    """The threads of one store. With a single thread, calls run in the order in which they came."""

    def __init__(self, store: str, threads: int, deadline_s: float = DEADLINE_S) -> None:
        self._store = store
        self._deadline_s = deadline_s
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=store)
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result. Overdue after the deadline; StoreUnavailable, without having begun, when
        too many calls wait already or the store is closed."""
        future = self._submit(call, *args, **kwargs)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise Overdue(f"{self._store} did not answer within {self._deadline_s:g} s") from error

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a call that changes nothing: overdue is StoreUnavailable."""
        try:
            return await self.run(call, *args, **kwargs)
        except Overdue as error:
            raise StoreUnavailable(str(error)) from error

    def run_now(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same from plain code, for opening a store before there is an event loop."""
        try:
            return self._submit(call, *args, **kwargs).result(OPEN_DEADLINE_S)
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._store} did not open within {OPEN_DEADLINE_S:g} s") from error

    def shut(self) -> None:
        """Take no more calls; those under way end by themselves."""
        self._executor.shutdown(wait=False)

    async def close(self, last: Callable[[], None]) -> None:
        """Run `last` behind the calls that came before it, then end the threads. Idempotent."""
        try:
            future = self._executor.submit(last)
        except RuntimeError:
            return
        self.shut()
        async with asyncio.timeout(self._deadline_s):
            await asyncio.wrap_future(future)

    def _submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if not self._waiting.acquire(blocking=False):
            raise StoreUnavailable(f"{self._store} is too slow: {MAX_WAITING} calls wait for it; try again")
        try:
            future = self._executor.submit(call, *args, **kwargs)
        except RuntimeError as error:
            self._waiting.release()
            raise StoreUnavailable(f"{self._store} is closed") from error
        future.add_done_callback(lambda _: self._waiting.release())
        return future
