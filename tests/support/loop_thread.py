"""An event loop in a thread of its own, for what must go on while a test has no loop, or another one."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

CALL_TIMEOUT_S: Final = 30.0


class Call(Protocol):
    def __call__(self, doing: Coroutine[Any, Any, T]) -> T:
        """Its result, when it has ended there."""
        ...


@contextmanager
def loop_in_thread(name: str) -> Iterator[tuple[asyncio.AbstractEventLoop, Call]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()

    def call(doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, loop).result(CALL_TIMEOUT_S)

    try:
        yield loop, call
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CALL_TIMEOUT_S)
        loop.close()
