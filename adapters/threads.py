"""Blocking calls off the event loop: a few threads of a store's own, and a deadline for every call.

Plainer than an executor of the standard library, whose hand-over costs more than the calls here take: a
call and its answer each pass through one queue.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

from ledger.errors import OutcomeUnknown, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_S = 30.0
OPEN_DEADLINE_S = 300.0
MAX_WAITING = 4096

_Answer: TypeAlias = asyncio.Future[Any] | Future[Any]


class Overdue(OutcomeUnknown):
    """The call did not end before its deadline; it may still have its effect."""


class _Asked:
    """A call that waits for a thread, and who is told what it came to; without them nothing is done."""

    __slots__ = ("answer", "call", "loop")

    def __init__(
        self, call: Callable[[], Any], answer: _Answer, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.call: Callable[[], Any] | None = call
        self.answer: _Answer | None = answer
        self.loop = loop


class _Calls(SimpleQueue[_Asked | None]):
    """Calls that wait for a thread; None sends one home."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    @property
    def are_too_many(self) -> bool:
        return self.qsize() >= self._most


class StoreThreads:
    """The threads of one store. With a single thread, calls run in the order in which they came."""

    def __init__(self, store: str, threads: int, deadline_s: float = DEADLINE_S) -> None:
        self._store = store
        self._count = threads
        self._deadline_s = deadline_s
        self._calls = _Calls(MAX_WAITING)
        self._due: dict[asyncio.Future[Any], float] = {}
        """When each call that is waited for is overdue (loop time), the oldest first."""
        self._watched_by: asyncio.AbstractEventLoop | None = None
        """The event loop that has a timer for the oldest of them."""
        self._started = False
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result. Overdue after the deadline; StoreUnavailable, without having begun, when
        too many calls wait already or the store is closed. A call that is cancelled or overdue before a
        thread came to it is never begun."""
        return await self._answer_of(*self._ask(partial(call, *args, **kwargs)))

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a call that changes nothing: overdue is StoreUnavailable."""
        try:
            return await self.run(call, *args, **kwargs)
        except Overdue as error:
            raise StoreUnavailable(str(error)) from error

    def run_now(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same from plain code, for opening a store before there is an event loop."""
        answer: Future[T] = Future()
        self._queue(partial(call, *args, **kwargs), answer, None)
        try:
            return answer.result(OPEN_DEADLINE_S)
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._store} did not open within {OPEN_DEADLINE_S:g} s") from error

    def shut(self) -> None:
        """Take no more calls; those that wait and are under way end by themselves."""
        if not self._closed:
            self._closed = True
            for _ in range(self._count if self._started else 0):
                self._calls.put(None)

    async def close(self, last: Callable[[], None]) -> None:
        """Run `last` behind the calls that came before it, then end the threads. Idempotent. Overdue if
        that takes too long."""
        if self._closed:
            return
        asked, answer = self._ask(last)
        self.shut()
        await self._answer_of(asked, answer)

    def _ask(self, call: Callable[[], T]) -> tuple[_Asked, asyncio.Future[T]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        return self._queue(call, answer, loop), answer

    async def _answer_of(self, asked: _Asked, answer: asyncio.Future[T]) -> T:
        self._watch(answer)
        try:
            return await answer
        finally:
            self._due.pop(answer, None)
            # While the threads hang it stays in the queue, but not with a draft that nobody waits for.
            asked.call = asked.answer = None
            # An error keeps this frame alive, so the frame must not keep what holds the error.
            del asked, answer

    def _queue(
        self, call: Callable[[], Any], answer: _Answer, loop: asyncio.AbstractEventLoop | None
    ) -> _Asked:
        if self._closed:
            raise StoreUnavailable(f"{self._store} is closed")
        if self._calls.are_too_many:
            raise StoreUnavailable(f"{self._store} is too slow: {MAX_WAITING} calls wait for it; try again")
        if not self._started:
            self._started = True
            for number in range(self._count):
                # Daemons: a disk that hangs for ever must not keep the process from ending.
                threading.Thread(
                    target=_work, args=(self._calls,), name=f"{self._store}-{number}", daemon=True
                ).start()
        asked = _Asked(call, answer, loop)
        self._calls.put(asked)
        return asked

    def _watch(self, answer: asyncio.Future[Any]) -> None:
        """One timer serves all calls: one each would cost more than the rest of the hand-over."""
        loop = answer.get_loop()
        due = loop.time() + self._deadline_s
        if self._watched_by is not loop:
            # Nobody waits on a loop that has ended.
            self._due.clear()
        self._due[answer] = due
        if self._watched_by is not loop:
            self._watched_by = loop
            loop.call_at(due, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched_by = None
        now = loop.time()
        for answer, due in list(self._due.items()):
            if due > now:
                self._watched_by = loop
                loop.call_at(due, self._expire, loop)
                return
            del self._due[answer]
            if not answer.done():
                answer.set_exception(Overdue(f"{self._store} did not answer within {self._deadline_s:g} s"))


def _work(calls: _Calls) -> None:
    while (asked := calls.get()) is not None:
        _do(asked)
        # Waiting for the next call holds on to nothing of this one.
        del asked


def _do(asked: _Asked) -> None:
    call, answer = asked.call, asked.answer
    asked.call = asked.answer = None
    if call is None or answer is None or answer.done():
        return
    try:
        result = call()
    except BaseException as error:
        _tell(asked.loop, answer, None, error)
    else:
        _tell(asked.loop, answer, result, None)
    finally:
        # As in `_answer_of`.
        del call, answer


def _tell(
    loop: asyncio.AbstractEventLoop | None, answer: _Answer, result: Any, failure: BaseException | None
) -> None:
    if loop is None:
        _settle(answer, result, failure)
        return
    try:
        loop.call_soon_threadsafe(_settle, answer, result, failure)
    except RuntimeError:
        # The loop has ended, and with it whoever asked.
        return


def _settle(answer: _Answer, result: Any, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(result)
