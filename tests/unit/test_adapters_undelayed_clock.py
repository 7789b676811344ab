"""The clock that stands still while its thread waits for a processor."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.undelayed_clock import RUN_DELAY, UndelayedClock

BUSY_S = 0.5
linux = pytest.mark.skipif(not Path(RUN_DELAY).exists(), reason="the system counts no run delay")


def spin() -> None:
    while True:
        pass


@contextmanager
def one_processor_with_another() -> Iterator[None]:
    """This thread shares its only processor with a process that never waits."""
    assert sys.platform == "linux"
    before = os.sched_getaffinity(0)
    only = {min(before)}
    other = multiprocessing.get_context("fork").Process(target=spin, daemon=True)
    other.start()
    try:
        assert other.pid is not None
        os.sched_setaffinity(other.pid, only)
        os.sched_setaffinity(0, only)
        yield
    finally:
        os.sched_setaffinity(0, before)
        other.kill()
        other.join()


@linux
def test_it_stands_still_while_another_process_has_the_processor() -> None:
    clock = UndelayedClock()
    with one_processor_with_another():
        clock()
        began, wall, cpu = clock(), time.perf_counter(), time.thread_time()
        while time.perf_counter() - wall < BUSY_S:
            pass
        took, cpu_s = clock() - began, time.thread_time() - cpu
    # The other process had about half of the time; more of it on a busy machine.
    assert took < 0.8 * BUSY_S
    assert took == pytest.approx(cpu_s, abs=0.1 * BUSY_S)


@linux
def test_it_goes_on_while_the_thread_waits_for_anything_else() -> None:
    clock = UndelayedClock()
    began = clock()
    time.sleep(0.2)
    # Less than that: on a busy machine the thread gets its processor late, perhaps within a reading.
    assert clock() - began >= 0.1


@linux
def test_each_thread_has_its_own_delay() -> None:
    clock = UndelayedClock()
    clock()
    seen: list[float] = []

    def in_a_new_thread() -> None:
        seen.append(time.perf_counter() - clock())

    thread = threading.Thread(target=in_a_new_thread)
    thread.start()
    thread.join()
    assert seen[0] < 0.5


def test_the_second_number_is_taken_off(tmp_path: Path) -> None:
    counted = tmp_path / "schedstat"
    counted.write_text("7 0 1\n")
    clock = UndelayedClock(str(counted))
    began = clock()
    counted.write_text("8 1500000000 2\n")
    assert clock() - began == pytest.approx(-1.5, abs=0.2)


@pytest.mark.parametrize("content", ["", "no numbers here", "1"])
def test_without_a_delay_it_is_any_other_clock(tmp_path: Path, content: str) -> None:
    odd = tmp_path / "odd"
    odd.write_text(content)
    for path in (odd, tmp_path / "nothing"):
        clock = UndelayedClock(str(path))
        began = time.perf_counter()
        assert clock() == pytest.approx(began, abs=0.5)
        assert clock() >= began
