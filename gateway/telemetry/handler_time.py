"""Time that the event loop spends on one request: Kafka's request handler time."""

import time
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class HandlerTime:
    """A stopwatch that runs while a coroutine does, and stops while it waits."""

    __slots__ = ("_since", "_spent_s")

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._since = 0.0
        """When the present step began, or 0."""

    def spent_s(self) -> float:
        """So far, in seconds."""
        return self._spent_s + (time.perf_counter() - self._since if self._since else 0.0)

    def start(self) -> None:
        """Begin a step, or continue one."""
        self._since = self._since or time.perf_counter()

    def stop(self) -> None:
        self._spent_s = self.spent_s()
        self._since = 0.0

    def timed(self, coroutine: Coroutine[Any, Any, Result]) -> "Timed[Result]":
        """Await this instead of the coroutine."""
        return Timed(self, coroutine)


class Timed(Generic[Result]):
    """A coroutine whose steps are timed."""

    __slots__ = ("_coroutine", "_watch")

    def __init__(self, watch: HandlerTime, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._watch = watch
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Result]:
        watch, coroutine = self._watch, self._coroutine
        value: Any = None
        error: BaseException | None = None
        while True:
            watch.start()
            try:
                waited_for = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as done:
                result: Result = done.value
                return result
            finally:
                watch.stop()
            error = None
            try:
                value = yield waited_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:
                error = thrown
