"""Work whose first step is made outside of any task: a task is needed only if there is something to wait for.

A step of a task costs two or three callbacks of the event loop, with a future between them. Work that nearly
always ends in its first step does without.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class Begun:
    """A coroutine that has made its first step, in the context of the task that awaits this if it is not
    done. Until then it must not use the current task, as `asyncio.timeout` does."""

    __slots__ = ("_error", "_waits_for", "_work", "is_done")

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._waits_for: Any = None
        self.is_done = False
        """Whether it has ended without a failure."""
        try:
            self._waits_for = work.send(None)
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self._error = error

    def __await__(self) -> Generator[Any, Any, None]:
        """The rest. Raises what the work has raised, or raises now."""
        if self._error is not None:
            raise self._error
        value: Any = None
        error: BaseException | None = None
        while not self.is_done:
            try:
                value = yield self._waits_for
            except BaseException as thrown:
                error = thrown
            try:
                self._waits_for = self._work.send(value) if error is None else self._work.throw(error)
            except StopIteration:
                self.is_done = True
            error = None

    def interrupt(self) -> None:
        """End it as a task that is cancelled, if nothing has awaited it."""
        if self.is_done or self._error is not None:
            return
        try:
            self._work.throw(asyncio.CancelledError())
        except (asyncio.CancelledError, StopIteration):
            self.is_done = True
