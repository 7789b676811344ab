"""Deadlines by the tenth of a second."""

import asyncio
from collections.abc import Callable

from gateway.coordination.deadlines import TICKS_A_SECOND, Deadlines

TICK_S = 1 / TICKS_A_SECOND


class Waiting:
    def __init__(self) -> None:
        self.expired_at: float | None = None

    def expire(self) -> None:
        assert self.expired_at is None
        self.expired_at = asyncio.get_running_loop().time()


async def test_who_waits_expires_at_its_deadline_or_a_tick_later() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    waits = [Waiting() for _ in range(20)]
    for number, waiting in enumerate(waits):
        deadlines.add(now + number * TICK_S / 7, waiting)
    await asyncio.sleep(6 * TICK_S)
    for number, waiting in enumerate(waits):
        assert waiting.expired_at is not None
        late = waiting.expired_at - (now + number * TICK_S / 7)
        # Timers are called up to a clock's resolution early, and later on a busy machine.
        assert -0.002 <= late <= 4 * TICK_S


async def test_who_left_before_does_not_expire() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    stays, goes = Waiting(), Waiting()
    deadlines.add(now, stays)
    deadlines.leave(deadlines.add(now, goes), goes)
    await asyncio.sleep(3 * TICK_S)
    assert stays.expired_at is not None and goes.expired_at is None


async def test_a_tick_has_one_timer_and_none_is_left_behind() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    for _ in range(1000):
        waiting = Waiting()
        deadlines.leave(deadlines.add(now + 3 * TICK_S, waiting), waiting)
    assert len(deadlines._timers) == len(deadlines._waiting) == 1
    await asyncio.sleep(5 * TICK_S)
    assert not deadlines._timers and not deadlines._waiting


async def test_after_closing_nobody_expires() -> None:
    deadlines, waiting = Deadlines(), Waiting()
    tick = deadlines.add(asyncio.get_running_loop().time(), waiting)
    deadlines.close()
    await asyncio.sleep(3 * TICK_S)
    deadlines.leave(tick, waiting)
    assert waiting.expired_at is None


async def test_one_that_expires_may_let_another_of_its_tick_go() -> None:
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    other = Waiting()

    class Releasing(Waiting):
        def expire(self) -> None:
            super().expire()
            deadlines.leave(tick, other)

    first = Releasing()
    deadlines.add(now, first)
    tick = deadlines.add(now, other)
    await asyncio.sleep(3 * TICK_S)
    assert first.expired_at is not None and other.expired_at is None


async def test_who_comes_while_its_tick_expires_or_behind_one_that_fails_expires_too() -> None:
    loop = asyncio.get_running_loop()
    deadlines, now = Deadlines(), loop.time()
    failed: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: failed.append(context))
    late, behind = Waiting(), Waiting()

    class Doing(Waiting):
        def __init__(self, what: Callable[[], object]) -> None:
            super().__init__()
            self.what = what

        def expire(self) -> None:
            super().expire()
            self.what()

    deadlines.add(now, Doing(lambda: deadlines.add(now, late)))
    deadlines.add(now, Doing(lambda: 1 // 0))
    deadlines.add(now, behind)
    await asyncio.sleep(3 * TICK_S)
    assert late.expired_at is not None and behind.expired_at is not None
    assert len(failed) == 1 and not deadlines._timers and not deadlines._waiting
