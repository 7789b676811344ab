"""Blocking calls off the event loop: a few threads of a store's own, and a deadline for every call.

Plainer than an executor of the standard library, whose hand-over costs more than the calls here take: a
call and its result each pass through one queue.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from ledger.errors import OutcomeUnknown, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_S = 30.0
OPEN_DEADLINE_S = 300.0
MAX_WAITING = 4096

_Result: TypeAlias = asyncio.Future[Any] | Future[Any]


class Overdue(OutcomeUnknown):
    """The call did not end before its deadline; it may still have its effect."""


class Threads(Protocol):
    """What a store makes its blocking calls with. A simulation has no threads, and makes them at once."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def run_now(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @property
    def is_idle(self) -> bool: ...

    def shut(self) -> None: ...

    async def close(self, last: Callable[[], None]) -> None: ...


NewThreads: TypeAlias = Callable[..., Threads]
"""With the arguments of `StoreThreads`."""


class _Call:
    """A call that waits for a thread, and its caller. A call whose caller no longer waits is not made."""

    __slots__ = ("call", "future", "loop")

    def __init__(
        self, call: Callable[[], Any], future: _Result, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.call: Callable[[], Any] | None = call
        self.future: _Result | None = future
        self.loop = loop


class _Calls(SimpleQueue[_Call | None]):
    """Calls that wait for a thread; None ends one."""

    def __init__(self, max_waiting: int) -> None:
        super().__init__()
        self.max_waiting = max_waiting
        self.ended = 0
        """Calls that a thread has made or skipped. Exact for one thread, which alone writes it."""

    @property
    def are_too_many(self) -> bool:
        return self.qsize() >= self.max_waiting


class StoreThreads:
    """The threads of one store. With a single thread, calls run in the order in which they came."""

    def __init__(
        self, store: str, threads: int, deadline_s: float = DEADLINE_S, max_waiting: int = MAX_WAITING
    ) -> None:
        """`max_waiting` bounds the queue; a cancelled call counts until a thread has skipped it."""
        self._store = store
        self._count = threads
        self._deadline_s = deadline_s
        self._calls = _Calls(max_waiting)
        self._queued = 0
        self._due: dict[asyncio.Future[Any], float] = {}
        """When each pending call is overdue (loop time), the oldest first."""
        self._watched_by: asyncio.AbstractEventLoop | None = None
        """The event loop that has a timer for the oldest of them."""
        self._started = False
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result. Overdue after the deadline; StoreUnavailable, without having begun, when
        too many calls wait already or the store is closed. A call that is cancelled or overdue before a
        thread takes it is never begun."""
        return await self._result_of(*self._submit(partial(call, *args, **kwargs)))

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a call that changes nothing: overdue is StoreUnavailable."""
        try:
            return await self.run(call, *args, **kwargs)
        except Overdue as error:
            raise StoreUnavailable(str(error)) from error

    def run_now(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same from plain code, for opening a store before there is an event loop."""
        future: Future[T] = Future()
        self._queue(partial(call, *args, **kwargs), future, None)
        try:
            return future.result(OPEN_DEADLINE_S)
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._store} did not open within {OPEN_DEADLINE_S:g} s") from error

    @property
    def is_idle(self) -> bool:
        """Whether no call waits or is under way, and calls may be made: then the caller may make one itself,
        and stay alone until it returns. Of a store with one thread, in the thread that submits its calls."""
        return self._calls.ended == self._queued and self._count == 1 and not self._closed

    def shut(self) -> None:
        """Refuse further calls. Calls in the queue and calls under way still end."""
        if not self._closed:
            self._closed = True
            for _ in range(self._count if self._started else 0):
                self._calls.put(None)

    async def close(self, last: Callable[[], None]) -> None:
        """Run `last` after the calls before it, then end the threads. Idempotent. Overdue if
        that takes too long."""
        if self._closed:
            return
        pending, future = self._submit(last)
        self.shut()
        await self._result_of(pending, future)

    def _submit(self, call: Callable[[], T]) -> tuple[_Call, asyncio.Future[T]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        return self._queue(call, future, loop), future

    async def _result_of(self, pending: _Call, future: asyncio.Future[T]) -> T:
        self._watch(future)
        try:
            return await future
        finally:
            self._due.pop(future, None)
            # While the threads hang, the call stays in the queue, but without its draft.
            pending.call = pending.future = None
            # An error keeps this frame alive, so the frame must not keep what holds the error.
            del pending, future

    def _queue(
        self, call: Callable[[], Any], future: _Result, loop: asyncio.AbstractEventLoop | None
    ) -> _Call:
        if self._closed:
            raise StoreUnavailable(f"{self._store} is closed")
        if self._calls.are_too_many:
            raise StoreUnavailable(
                f"{self._store} is too slow: {self._calls.max_waiting} calls wait for it; try again"
            )
        if not self._started:
            self._started = True
            for number in range(self._count):
                # Daemons: a disk that hangs for ever must not keep the process from ending.
                threading.Thread(
                    target=_work, args=(self._calls,), name=f"{self._store}-{number}", daemon=True
                ).start()
        pending = _Call(call, future, loop)
        self._queued += 1
        self._calls.put(pending)
        return pending

    def _watch(self, future: asyncio.Future[Any]) -> None:
        """One timer serves all calls. A timer for each would cost more than the rest of the hand-over."""
        loop = future.get_loop()
        due = loop.time() + self._deadline_s
        if self._watched_by is not loop:
            # No call is awaited on a loop that has ended.
            self._due.clear()
        self._due[future] = due
        if self._watched_by is not loop:
            self._watched_by = loop
            loop.call_at(due, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched_by = None
        now = loop.time()
        for future, due in list(self._due.items()):
            if due > now:
                self._watched_by = loop
                loop.call_at(due, self._expire, loop)
                return
            del self._due[future]
            if not future.done():
                future.set_exception(Overdue(f"{self._store} did not answer within {self._deadline_s:g} s"))


def _work(calls: _Calls) -> None:
    while (pending := calls.get()) is not None:
        _do(calls, pending)
        # While waiting for the next call, keep no reference to this one.
        del pending


def _do(calls: _Calls, pending: _Call) -> None:
    call, future = pending.call, pending.future
    pending.call = pending.future = None
    if call is None or future is None or future.done():
        calls.ended += 1
        return
    result, failure = None, None
    try:
        result = call()
    except BaseException as error:
        failure = error
    # First: the caller that gets the result may make the next call.
    calls.ended += 1
    try:
        _return(pending.loop, future, result, failure)
    finally:
        # As in `_result_of`.
        del call, future, failure


def _return(
    loop: asyncio.AbstractEventLoop | None, future: _Result, result: Any, failure: BaseException | None
) -> None:
    if loop is None:
        _complete(future, result, failure)
        return
    try:
        loop.call_soon_threadsafe(_complete, future, result, failure)
    except RuntimeError:
        # The event loop has ended, and the caller with it.
        return


def _complete(future: _Result, result: Any, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)
