"""The objects of an ended heavy request are freed in slices, so no iteration of the loop is long for them."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from gateway.cli.process import COLLECTOR
from gateway.scheduling.freeing import PART, Kept, freeing
from gateway.scheduling.slices import Owner, Slices, SliceScheduler
from gateway.wire.apis import RANGES, ApiKey
from tests.support.caller import Caller
from tests.support.in_memory import InMemoryGateway, in_memory_gateway
from tests.unit.test_proportion import LONGEST_SLICE_S, TOPIC, of_many_elements

TIMES: Final = 3
"""The best of this number of counts: the machine does other work besides."""


class Counted:
    """Counts how many of its kind there are."""

    there = 0

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner
        Counted.there += 1

    def __del__(self) -> None:
        Counted.there -= 1


def steps(kept: Kept) -> list[int]:
    """How many went in each step of freeing."""
    found, before = list[int](), Counted.there
    for _ in freeing(kept):
        found.append(before - Counted.there)
        before = Counted.there
    return found


def test_a_long_list_goes_part_by_part() -> None:
    assert max(steps([[Counted() for _ in range(10_000)]])) <= PART
    assert Counted.there == 0


def test_long_lists_within_elements_go_part_by_part_in_whatever_order_they_are_kept() -> None:
    inner = [Counted() for _ in range(10_000)]
    holder = Counted(inner)
    pairs = [(holder, one) for one in inner]
    kept: Kept = [inner, pairs, dict(enumerate(pairs)), pairs]
    del inner, holder, pairs
    assert max(steps(kept)) <= PART + 1
    assert Counted.there == 0


def test_a_list_that_is_still_in_use_stays_as_it_is() -> None:
    used = [Counted() for _ in range(1_000)]
    assert sum(steps([used, [used]])) == 0
    assert len(used) == Counted.there == 1_000


async def test_memory_is_released_when_all_is_freed() -> None:
    scheduler = SliceScheduler(1_000)
    slices = Slices(scheduler, Owner(1, "10.0.0.1"))
    slices.bytes = 600
    await slices.next_slice()
    slices.keep([Counted() for _ in range(20_000)])
    slices.end()
    assert scheduler.held_bytes == 600
    scheduler.drop(1)  # the connection is gone
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert scheduler.held_bytes == scheduler.waiting == 0
    assert Counted.there == 0


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    settings = {"limits.partitions": "50000", "broker.auto.create.topics.enable": "false"}
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)
    try:
        async with in_memory_gateway(settings) as running:
            await running.create(TOPIC, 10)
            yield running
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@pytest.mark.serial
@pytest.mark.parametrize(
    ("key", "array", "count"),
    [(ApiKey.OFFSET_FETCH, 1, 150_000), (ApiKey.ALTER_CONFIGS, 0, 50_000), (ApiKey.PRODUCE, 0, 50_000)],
    ids=["OFFSET_FETCH", "ALTER_CONFIGS", "PRODUCE"],
)
async def test_no_iteration_takes_longer_than_20_ms(
    key: ApiKey, array: int, count: int, gateway: InMemoryGateway
) -> None:
    caller, version = Caller(gateway), RANGES[key][1]
    body = of_many_elements(key, version, count)[array]
    await caller.ask(key, version, of_many_elements(key, version, 1_000)[array])
    await caller.freed()
    longest = list[float]()
    for _ in range(TIMES):
        _, probe = await caller.probed(key, version, body)
        longest.append(max(probe.slice_s, await caller.freed()))
    assert min(longest) < LONGEST_SLICE_S, longest


async def test_what_a_request_was_decoded_to_does_not_go_in_one_iteration(gateway: InMemoryGateway) -> None:
    key, version, count = ApiKey.OFFSET_COMMIT, RANGES[ApiKey.OFFSET_COMMIT][1], 150_000
    caller = Caller(gateway)
    body = of_many_elements(key, version, count)[1]
    requested = asyncio.ensure_future(caller.ask(key, version, body))
    most_freed, before = 0, sys.getallocatedblocks()
    while not requested.done() or caller.services.scheduler.waiting:
        await asyncio.sleep(0)
        now = sys.getallocatedblocks()
        most_freed, before = max(most_freed, before - now), now
    # Of five or six blocks an element; a slice of a quick machine frees 150,000.
    assert most_freed < 3 * count
