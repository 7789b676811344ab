"""Deadlines by the tenth of a second."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from gateway.timers.deadlines import TICKS_A_SECOND, Deadlines
from tests.support.virtual_time import run_virtually

TICK_S = 1 / TICKS_A_SECOND


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Time is what the timers say, however busy the machine is."""

    @wraps(test)
    def run() -> None:
        run_virtually(test)

    return run


class Pending:
    """A completion that remembers when it failed."""

    def __init__(self) -> None:
        self.expired_at: float | None = None

    def done(self) -> bool:
        return self.expired_at is not None

    def set_result(self, result: object, /) -> None:
        raise AssertionError(result)

    def set_exception(self, error: Exception, /) -> None:
        assert self.expired_at is None and type(error) is TimeoutError
        self.expired_at = asyncio.get_running_loop().time()


@virtually
async def test_a_completion_fails_at_its_deadline_or_a_tick_later() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    pending = [Pending() for _ in range(20)]
    for number, completion in enumerate(pending):
        deadlines.add(now + number * TICK_S / 7, completion)
    await asyncio.sleep(6 * TICK_S)
    for number, completion in enumerate(pending):
        assert completion.expired_at is not None
        late = completion.expired_at - (now + number * TICK_S / 7)
        # Timers are called up to a clock's resolution early.
        assert -0.002 <= late <= TICK_S + 0.002


@virtually
async def test_a_completion_that_is_removed_before_does_not_fail() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    stays, goes = Pending(), Pending()
    deadlines.add(now, stays)
    deadlines.remove(deadlines.add(now, goes), goes)
    await asyncio.sleep(3 * TICK_S)
    assert stays.expired_at is not None and goes.expired_at is None


@virtually
async def test_a_tick_has_one_timer_and_leaves_none() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    for _ in range(1000):
        completion = Pending()
        deadlines.remove(deadlines.add(now + 3 * TICK_S, completion), completion)
    assert len(deadlines._timers) == len(deadlines._pending) == 1
    await asyncio.sleep(5 * TICK_S)
    assert not deadlines._timers and not deadlines._pending


@virtually
async def test_after_closing_no_completion_fails() -> None:
    deadlines, completion = Deadlines(), Pending()
    tick = deadlines.add(asyncio.get_running_loop().time(), completion)
    deadlines.close()
    await asyncio.sleep(3 * TICK_S)
    deadlines.remove(tick, completion)
    assert completion.expired_at is None


@virtually
async def test_one_that_fails_may_remove_another_of_its_tick() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    other = Pending()

    class Releasing(Pending):
        def set_exception(self, error: Exception, /) -> None:
            super().set_exception(error)
            deadlines.remove(tick, other)

    first = Releasing()
    deadlines.add(now, first)
    tick = deadlines.add(now, other)
    await asyncio.sleep(3 * TICK_S)
    assert first.expired_at is not None and other.expired_at is None


@virtually
async def test_one_that_is_added_while_its_tick_expires_or_follows_one_that_raises_fails_too() -> None:
    loop = asyncio.get_running_loop()
    deadlines, now = Deadlines(), loop.time()
    failed: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: failed.append(context))
    late, following = Pending(), Pending()

    class Doing(Pending):
        def __init__(self, what: Callable[[], object]) -> None:
            super().__init__()
            self.what = what

        def set_exception(self, error: Exception, /) -> None:
            super().set_exception(error)
            self.what()

    deadlines.add(now, Doing(lambda: deadlines.add(now, late)))
    deadlines.add(now, Doing(lambda: 1 // 0))
    deadlines.add(now, following)
    await asyncio.sleep(3 * TICK_S)
    assert late.expired_at is not None and following.expired_at is not None
    assert len(failed) == 1 and not deadlines._timers and not deadlines._pending
