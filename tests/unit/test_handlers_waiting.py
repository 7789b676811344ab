"""Prompt requests that have to wait after all: each is told once, or, if it is cancelled, never."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.context import RequestContext
from gateway.handlers.waiting import Waiting
from gateway.telemetry.handler_time import HandlerTime


class Told:
    """A reply that remembers."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.errors: list[Exception] = []

    def answer(self, response: object) -> None:
        self.answers.append(response)

    def fail(self, error: Exception) -> None:
        self.errors.append(error)


class Request:
    """What is awaited until it is let go, and then gives a number or fails."""

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
async def test_what_is_awaited_is_told_when_it_is_there(is_timed: bool) -> None:
    watch = HandlerTime() if is_timed else None
    request, told = Request(), Told()
    waiting = Waiting(context_of(watch), request.run, told)
    await turns()
    assert not told.answers
    request.going.set()
    await turns()
    waiting.cancel()
    await turns()
    assert told.answers == [7] and not told.errors and not request.was_cancelled
    assert watch is None or watch.spent_s() > 0


async def test_a_failure_is_told_as_such() -> None:
    error: Any = ZeroDivisionError()
    request, told = Request(error), Told()
    Waiting(context_of(None), request.run, told)
    request.going.set()
    await turns()
    assert told.errors == [error] and not told.answers


async def test_what_is_cancelled_goes_on_no_more_and_is_not_told() -> None:
    request, told = Request(), Told()
    waiting = Waiting(context_of(None), request.run, told)
    await turns()
    waiting.cancel()
    request.going.set()
    await turns()
    assert request.was_cancelled and not told.answers and not told.errors


@pytest.mark.filterwarnings("error")
async def test_what_is_cancelled_in_the_turn_in_which_it_came_is_not_begun() -> None:
    begun: list[bool] = []
    told = Told()

    async def wait() -> object:
        begun.append(True)
        return 7

    Waiting(context_of(None), wait, told).cancel()
    await turns()
    assert not begun and not told.answers and not told.errors
