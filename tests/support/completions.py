"""Completions that a test awaits, or that call a function of the test."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from gateway.produce.accumulator import ProduceCompletion

Result = TypeVar("Result", contravariant=True)


class AwaitedProduce(ProduceCompletion):
    """In the place of a Produce request that came over a connection. `completed` is done when every batch has
    its result."""

    __slots__ = ("completed",)

    def __init__(self) -> None:
        super().__init__()
        self.completed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_result(self, result: None, /) -> None:
        if not self.completed.done():
            self.completed.set_result(None)


class Calls(Generic[Result]):
    """A completion that passes results on to a function. None of those it is used for may fail."""

    def __init__(self, on_result: Callable[[Result], object]) -> None:
        self._on_result = on_result

    def done(self) -> bool:
        return False

    def set_result(self, result: Result, /) -> None:
        self._on_result(result)

    def set_exception(self, error: Exception, /) -> None:
        raise AssertionError("a result was expected") from error
