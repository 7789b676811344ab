"""Inline requests that have to wait after all: each is completed once, or, if it is cancelled, never."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.requests.context import RequestContext
from gateway.requests.deferred import defer
from gateway.telemetry.handler_time import HandlerTime


class Completed:
    """A completion that remembers its calls."""

    def __init__(self) -> None:
        self.results: list[object] = []
        self.errors: list[Exception] = []

    def done(self) -> bool:
        return bool(self.results or self.errors)

    def set_result(self, response: object, /) -> None:
        self.results.append(response)

    def set_exception(self, error: Exception, /) -> None:
        self.errors.append(error)


class Request:
    """What is awaited until it is released, and then returns a number or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.going = asyncio.Event()
        self.error = error
        self.was_cancelled = False

    async def run(self) -> object:
        try:
            await self.going.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return 7


def context_of(watch: HandlerTime | None) -> RequestContext:
    return cast(RequestContext, SimpleNamespace(handler_time=watch))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_timed", [False, True])
async def test_a_deferred_request_is_completed_when_its_result_is_there(is_timed: bool) -> None:
    watch = HandlerTime() if is_timed else None
    request, completed = Request(), Completed()
    task = defer(context_of(watch), request.run, completed)
    await turns()
    assert not completed.results
    request.going.set()
    await turns()
    task.cancel()
    await turns()
    assert completed.results == [7] and not completed.errors and not request.was_cancelled
    assert watch is None or watch.spent_s() > 0


async def test_a_failure_is_set_as_an_exception() -> None:
    error: Any = ZeroDivisionError()
    request, completed = Request(error), Completed()
    defer(context_of(None), request.run, completed)
    request.going.set()
    await turns()
    assert completed.errors == [error] and not completed.results


async def test_a_cancelled_request_does_not_continue_and_is_not_completed() -> None:
    request, completed = Request(), Completed()
    task = defer(context_of(None), request.run, completed)
    await turns()
    task.cancel()
    request.going.set()
    await turns()
    assert request.was_cancelled and not completed.results and not completed.errors


@pytest.mark.filterwarnings("error")
async def test_a_request_that_is_cancelled_in_the_iteration_in_which_it_came_is_not_begun() -> None:
    begun: list[bool] = []
    completed = Completed()

    async def wait() -> object:
        begun.append(True)
        return 7

    defer(context_of(None), wait, completed).cancel()
    await turns()
    assert not begun and not completed.results and not completed.errors
