"""An event loop whose time only moves when nothing else is left to do, so that hours take no time.

    run_virtually(lambda: main())

Nothing in it may wait for a thread, a socket or a process: there time would run ahead of them. What the loop
would run in a thread (`asyncio.to_thread`) it runs itself, as the next event.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    """Instead of waiting it moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits and nothing is due")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Selector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        called: asyncio.Future[Result] = self.create_future()
        self.call_soon(_call, called, func, args)
        return called


def _call(called: asyncio.Future[Result], func: Callable[..., Result], args: tuple[Any, ...]) -> None:
    if called.done():
        return
    try:
        called.set_result(func(*args))
    except Exception as error:
        called.set_exception(error)


def run_virtually(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run to the end on a clock that begins at 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
