"""What tests of CPU time make of a machine whose memory is slow."""

import asyncio
import time

import pytest

from tests.support import quiet
from tests.support.loop_time import longest_turn
from tests.support.quiet import MOST, QUIET_S, as_if_quiet, slowness, worst_slowness


class SlowClock:
    """The CPU time of a thread in which everything measured takes so long."""

    def __init__(self, took_s: float) -> None:
        self.took_s = took_s
        self.read_s = 0.0

    def __call__(self) -> float:
        self.read_s += self.took_s
        return self.read_s


@pytest.mark.parametrize(("took", "slower"), [(0.2, 1.0), (1.0, 1.0), (4.0, 4.0), (1_000.0, MOST)])
def test_what_was_measured_is_as_much_shorter_as_the_machine_is_slower(
    monkeypatch: pytest.MonkeyPatch, took: float, slower: float
) -> None:
    monkeypatch.setattr(quiet, "_found", [])
    monkeypatch.setattr(time, "thread_time", SlowClock(took * QUIET_S))
    assert slowness() == pytest.approx(slower)
    assert as_if_quiet(1.0) == pytest.approx(1.0 / slower)
    assert worst_slowness() == pytest.approx(took)


async def test_a_turn_is_compared_with_the_slower_moment_before_or_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = iter([5.0, 2.0])
    monkeypatch.setattr("tests.support.loop_time.slowness", lambda: next(found))
    monkeypatch.setattr(time, "thread_time", SlowClock(0.1))
    assert await longest_turn(asyncio.sleep(0)) == pytest.approx(0.1 / 5.0)
