"""The allocator and the collector of a gateway process, in processes of their own."""

import asyncio
import ctypes
import os
import subprocess
import sys

import pytest

from gateway.cli import process
from tests.support.held_requests import until
from tests.support.versions import ROOT

glibc_only = pytest.mark.skipif(process._glibc() is None, reason="the C library is not glibc")

# Buffers of a megabyte are allocated and freed; page faults show whether they were mapped again each time.
CHURN = """
import os, resource
from gateway.cli.process import give_back, tune_allocator
tune_allocator(os.environ)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def churn():
    for _ in range(20):
        [bytes(1_000_000) for _ in range(10)]
churn()
before = faults()
churn()
print(faults() - before)
"""

GIVE_BACK = """
import os
from gateway.cli.process import give_back, tune_allocator
tune_allocator(os.environ)
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
kept = [bytes(1_000_000) for _ in range(200)]
full = resident()
del kept
held = resident()
give_back()
print(full, held, resident())
"""


def numbers_of(code: str, **environment: str) -> list[int]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, timeout=60)
    return [int(word) for word in done.stdout.split()]


@glibc_only
def test_buffers_of_a_megabyte_are_used_again_and_not_mapped_again() -> None:
    (faults,) = numbers_of(CHURN)
    assert faults < 200


@glibc_only
def test_what_the_operator_says_of_the_allocator_counts() -> None:
    (faults,) = numbers_of(CHURN, MALLOC_ARENA_MAX="2")
    assert faults > 2_000


@glibc_only
def test_what_is_free_is_held_until_it_is_given_back() -> None:
    full, held, after = numbers_of(GIVE_BACK)
    assert held > full - 50_000_000
    assert after < full - 150_000_000


async def test_memory_is_given_back_once_after_a_busy_time(monkeypatch: pytest.MonkeyPatch) -> None:
    moved, given_back = [0], list[int]()
    monkeypatch.setattr(process, "give_back", lambda: given_back.append(moved[0]))
    calming = asyncio.ensure_future(process.tend_memory(lambda: moved[0], in_huge_pages=False, look_s=0.01))
    await asyncio.sleep(0.05)
    assert not given_back
    for _ in range(5):
        moved[0] += process.BUSY_BYTES
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert given_back == [5 * process.BUSY_BYTES]
    moved[0] += process.CALM_BYTES
    await asyncio.sleep(0.05)
    assert len(given_back) == 1
    calming.cancel()


async def test_memory_is_put_into_huge_pages_when_much_has_come_or_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved, resident, put_at, looks = [0], [process.CHANGED_BYTES], list[int](), [0]

    async def put(size: int) -> int:
        put_at.append(resident[0])
        return 3

    def look() -> int:
        looks[0] += 1
        return resident[0]

    monkeypatch.setattr(process, "huge_page_bytes", lambda: 2 * process.MIB)
    monkeypatch.setattr(process, "use_huge_pages", put)
    monkeypatch.setattr(process, "resident_bytes", look)
    monkeypatch.setattr(process, "give_back", lambda: None)
    tending = asyncio.ensure_future(process.tend_memory(lambda: moved[0], in_huge_pages=True, look_s=0.001))
    for changed in (1.0, 1.9, 3.0, 2.0, 40.0, 45.0):
        resident[0], looks[0] = int(changed * process.CHANGED_BYTES), 0
        await until(lambda: looks[0] > 4)
    assert put_at == [int(changed * process.CHANGED_BYTES) for changed in (1.0, 3.0, 2.0, 40.0)]
    # What was returned to the system was part of huge pages, however little it was.
    moved[0] += process.BUSY_BYTES
    await until(lambda: len(put_at) == 5)
    tending.cancel()


async def test_in_a_busy_time_memory_is_seldom_put_into_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes and goes then are buffers, which a huge page would be a copy of."""
    moved, resident, put_at, is_busy = [0], [process.CHANGED_BYTES], list[int](), [True]
    now, looks = [1000.0], [0]

    async def put(size: int) -> int:
        put_at.append(resident[0])
        return 3

    def move() -> int:
        looks[0] += 1
        moved[0] += process.BUSY_BYTES * is_busy[0]
        resident[0] += process.CHANGED_BYTES * 100 * is_busy[0]
        return moved[0]

    monkeypatch.setattr(process, "huge_page_bytes", lambda: 2 * process.MIB)
    monkeypatch.setattr(process, "use_huge_pages", put)
    monkeypatch.setattr(process, "resident_bytes", lambda: resident[0])
    monkeypatch.setattr(process, "give_back", lambda: None)
    tend = process.tend_memory(move, in_huge_pages=True, look_s=0.001, clock=lambda: now[0])
    tending = asyncio.ensure_future(tend)
    for puts in (1, 2):
        # Once, since it never was before or the time is over.
        looks[0] = 0
        await until(lambda: looks[0] > 9)
        assert len(put_at) == puts
        now[0] += process.BUSY_PUT_S
    is_busy[0] = False
    await until(lambda: len(put_at) == 3)
    assert put_at[2] == resident[0]
    tending.cancel()


async def test_memory_stays_as_it_is_where_there_are_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [0]

    def moved() -> int:
        looks[0] += 1
        return 0

    async def put(size: int) -> int:
        raise AssertionError

    monkeypatch.setattr(process, "use_huge_pages", put)
    for has_some, wanted in ((True, False), (False, True)):
        monkeypatch.setattr(process, "huge_page_bytes", lambda some=has_some: some * process.MIB)
        tending = asyncio.ensure_future(process.tend_memory(moved, in_huge_pages=wanted, look_s=0.001))
        looks[0] = 0
        await until(lambda: looks[0] > 4)
        assert not tending.done()
        tending.cancel()


def test_another_c_library_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not process.tune_allocator({})
    process.give_back()
