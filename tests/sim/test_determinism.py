"""One seed is one history, byte for byte: a gateway uses nothing of the host but its world."""

import asyncio
import os
import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from gateway.host import random_bytes
from tests.sim.history import History, history, lived

SEEDS = (4, 7, 11)


@pytest.mark.parametrize("in_files", [False, True], ids=["memory", "files"])
@pytest.mark.parametrize("seed", SEEDS)
def test_two_assemblies_in_one_process_write_the_same_bytes(seed: int, in_files: bool) -> None:
    """Journal, batches, snapshots and archives, over crashes and failing stores, under the same load."""
    one = partial(history, seed, in_files=in_files)

    async def both() -> tuple[History, History]:
        first, second = await asyncio.gather(one(), one())
        return first, second

    first, second = lived(both)
    assert first.written == second.written
    assert first.lives > 2 and first.acknowledged > 30


def test_one_assembly_after_the_other_writes_the_same_bytes() -> None:
    assert lived(partial(history, 7)).written == lived(partial(history, 7)).written


def test_another_seed_is_another_history() -> None:
    assert lived(partial(history, 7)).written != lived(partial(history, 8)).written


def test_random_values_of_the_host_would_show() -> None:
    changed = partial(history, 7, lambda world: replace(world, random_bytes=random_bytes))
    assert lived(changed).written != lived(changed).written


def test_a_clock_of_the_host_would_show() -> None:
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 7))
    changed = partial(history, 7, lambda world: replace(world, wall_ms=lambda: next(ticks)))
    assert lived(changed).written != lived(changed).written


def test_nothing_of_the_host_is_used_without_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a gateway in another world has used this host")

    async def without_host() -> History:
        with monkeypatch.context() as patched:
            patched.setattr(os, "urandom", refused)
            patched.setattr(time, "time_ns", refused)
            patched.setattr(time, "clock_gettime_ns", refused)
            patched.setattr(threading.Thread, "start", refused)
            return await history(7)

    assert lived(without_host).wrong == []
