"""Frames that the thread of the event loop writes: which, on which disk, and what a disk that stalls does."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.local_log.loop_writes import (
    MAX_LOOP_BYTES,
    PAUSE_FACTOR,
    QUICK_AGAIN,
    QUICK_AT_FIRST,
    QUICK_S,
    LoopWrites,
)
from adapters.local_log.opening import LocalLog
from ledger.errors import StoreUnavailable
from tests.support.local_logs import Written, entries_of, entry, opened_log

ENTRY_BYTES = 200
STALL_S = 2.0
FRAME_AT = 4096


class Clock:
    """Stands still unless a write takes time."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class Disk:
    """Notes which thread writes each frame, and can be slow or fail."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[threading.Thread] = []
        self.takes_s = 0.0
        self.error = 0
        self._clock = clock
        self._pwritev = os.pwritev
        monkeypatch.setattr(os, "pwritev", self._write)

    def _write(self, fd: int, buffers: Sequence[Any], at: int, flags: int = 0) -> int:
        is_frame = at >= FRAME_AT and bytes(buffers[0][:4]) == b"DLFR"
        if is_frame:
            self.threads.append(threading.current_thread())
            if self.error:
                raise OSError(self.error, os.strerror(self.error))
            if self.takes_s:
                time.sleep(self.takes_s)
                self._clock.advance(self.takes_s)
        return self._pwritev(fd, buffers, at, flags)

    @property
    def loops(self) -> list[bool]:
        """Of each frame, whether the thread of the event loop wrote it."""
        return [thread is threading.main_thread() for thread in self.threads]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def disk(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(clock, monkeypatch)


async def appended(log: LocalLog, count: int, first: int = 0, written: Written | None = None) -> int:
    """The number of the next entry."""
    written = written or Written()
    for number in range(first, first + count):
        await written.append(log, number, ENTRY_BYTES)
        # Zeros that are being written ahead would make the next one the thread's.
        await log.journal.filled()
    return first + count


def after(*took_s: float, is_on_loop: bool = False) -> tuple[LoopWrites, Clock]:
    """After writes of these durations."""
    clock = Clock()
    writes = LoopWrites(clock)
    for seconds in took_s:
        writes.timed(partial(clock.advance, seconds), is_on_loop=is_on_loop)
    return writes, clock


AT_FIRST = [QUICK_S / 2] * QUICK_AT_FIRST
AGAIN = [QUICK_S / 2] * QUICK_AGAIN


def test_small_frames_may_go_once_enough_writes_were_quick() -> None:
    assert not after(*AT_FIRST[1:])[0].may_write(1)
    assert after(*AT_FIRST)[0].may_write(MAX_LOOP_BYTES)
    assert not after(*AT_FIRST)[0].may_write(MAX_LOOP_BYTES + 1)


def test_one_write_that_is_not_quick_ends_it_until_enough_are_again() -> None:
    assert not after(*AT_FIRST, 2 * QUICK_S, *AGAIN[1:])[0].may_write(1)
    assert after(*AT_FIRST, 2 * QUICK_S, *AGAIN)[0].may_write(1)
    assert not after(*AT_FIRST[1:], 2 * QUICK_S, *AGAIN[1:])[0].may_write(1)


def test_after_a_slow_write_of_the_loop_none_goes_for_a_time_in_proportion() -> None:
    for took_s in (2 * QUICK_S, 1.0):
        writes, clock = after(*AT_FIRST)
        writes.timed(partial(clock.advance, took_s), is_on_loop=True)
        for _ in AGAIN:
            writes.timed(lambda: None, is_on_loop=False)
        clock.advance(PAUSE_FACTOR * took_s - QUICK_S)
        assert not writes.may_write(1)
        clock.advance(2 * QUICK_S)
        assert writes.may_write(1)


def test_slow_writes_take_the_loop_at_most_their_share_on_a_disk_that_is_often_slow() -> None:
    writes, clock = after(*AT_FIRST)
    began_s, lost_s, on_loop = clock.now_s, 0.0, 0
    count = 100_000
    for number in range(count):
        took_s = 3 * QUICK_S if number % 50 == 0 else QUICK_S / 10
        goes = writes.may_write(1)
        lost_s += took_s if goes and took_s > QUICK_S else 0.0
        on_loop += goes
        writes.timed(partial(clock.advance, took_s), is_on_loop=goes)
        clock.advance(QUICK_S)
    assert lost_s < (clock.now_s - began_s) / PAUSE_FACTOR
    assert on_loop > count / 20


async def test_after_quick_writes_the_thread_of_the_loop_writes_and_all_is_there(
    tmp_path: Path, clock: Clock, disk: Disk
) -> None:
    written = Written()
    async with opened_log(tmp_path, precise_s=clock) as log:
        await appended(log, QUICK_AT_FIRST + 20, written=written)
        await written.verify(log)
    assert disk.loops == [False] * QUICK_AT_FIRST + [True] * 20
    async with opened_log(tmp_path) as log:
        await written.verify(log)


async def test_what_has_more_to_do_than_to_write_is_left_to_the_thread(
    tmp_path: Path, clock: Clock, disk: Disk
) -> None:
    written = Written()
    async with opened_log(tmp_path, precise_s=clock) as log:
        number = await appended(log, QUICK_AT_FIRST, written=written)
        disk.threads.clear()
        # Too large; then the thread is busy with another call, before which the entry must not be.
        await written.append(log, number, MAX_LOOP_BYTES)
        raising = asyncio.ensure_future(log.journal.raise_start(1))
        await asyncio.sleep(0)
        await written.append(log, number + 1, ENTRY_BYTES)
        await raising
        await appended(log, 1, number + 2, written)
        assert disk.loops == [False, False, True]
        # A file is begun for a draft with which an entry of any size might not fit into this one.
        for full in range(number + 3, number + 11):
            await written.append(log, full, padding=500_000)
        disk.threads.clear()
        await appended(log, 2, number + 11, written)
        assert disk.loops == [False, True]
        await written.verify(log)


async def test_a_disk_that_stalls_holds_the_loop_up_once_and_then_only_its_own_thread(
    tmp_path: Path, clock: Clock, disk: Disk
) -> None:
    written = Written()
    async with opened_log(tmp_path, precise_s=clock) as log:
        number = await appended(log, QUICK_AT_FIRST, written=written)
        disk.threads.clear()
        disk.takes_s = STALL_S
        number = await appended(log, 1, number, written)
        assert disk.loops == [True]
        longest_s = 0.0

        async def tick() -> None:
            nonlocal longest_s
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                longest_s = max(longest_s, time.monotonic() - began)

        ticking = asyncio.ensure_future(tick())
        number = await appended(log, 2, number, written)
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        assert disk.loops == [True, False, False]
        assert longest_s < STALL_S / 2
        # A hundred times as long later, and as quick as before.
        disk.takes_s = 0.0
        clock.advance(PAUSE_FACTOR * STALL_S)
        number = await appended(log, QUICK_AGAIN, number, written)
        assert not any(disk.loops[3:])
        await appended(log, 1, number, written)
        assert disk.loops[-1]
        await written.verify(log)


async def test_while_zeros_are_written_that_nobody_waits_for_any_more_the_loop_writes_nothing(
    tmp_path: Path, clock: Clock, disk: Disk
) -> None:
    """A disk that hangs there would hang the loop: with a write, or with the lock that the fill holds."""
    goes_on = threading.Event()
    async with opened_log(tmp_path, precise_s=clock) as log:
        await appended(log, QUICK_AT_FIRST)
        assert log.journal.appends_at_once
        hanging = asyncio.ensure_future(log.journal._filling.run(goes_on.wait))  # noqa: SLF001 - a fill that is not waited for
        await asyncio.sleep(0)
        assert not log.journal.appends_at_once
        goes_on.set()
        await hanging
        assert log.journal.appends_at_once


async def test_a_write_of_the_loop_that_fails_is_resolved_as_any_other(
    tmp_path: Path, clock: Clock, disk: Disk
) -> None:
    async with opened_log(tmp_path, precise_s=clock) as log:
        number = await appended(log, QUICK_AT_FIRST)
        disk.error = errno.EIO
        with pytest.raises(StoreUnavailable, match="I/O error"):
            await log.journal.append(number, entry(number))
        assert disk.loops[-1]
        disk.error = 0
        await log.journal.append(number, entry(number, life=1))
        # A disk that fails is not trusted to be quick.
        assert not disk.loops[-1]
        assert (await entries_of(log))[number] == entry(number, life=1)
