"""Drafts that are written at the same time: how many, and of how many bytes."""

import asyncio

import pytest

from gateway.produce.service import ProduceOptions
from gateway.produce.uploads import COMMITS_A_WRITE, LOCAL_WRITES
from gateway.settings import Ledger
from tests.support.far_produce import ETCD, Far, now_ms
from tests.support.virtual_time import run_virtually

KIB, MIB = 1024, 1024 * 1024
DEFAULTS = Ledger()
LONG_MS = 3_600_000
SENT = 60


def options_with(upload_bytes: int, drafts_in_flight: int = 256, draft_batches: int = 3) -> ProduceOptions:
    return ProduceOptions(8 * MIB, draft_batches, drafts_in_flight, 5, upload_bytes=upload_bytes)


async def send_all(far: Far, size: int) -> None:
    sent = [far.send(size=size) for _ in range(SENT)]
    await asyncio.gather(*[one.completed for one in sent])


def under_way(options: ProduceOptions, size: int, overlapping: bool = True) -> list[int]:
    """The bytes of the drafts that are being written, after each that was begun."""

    async def run() -> list[int]:
        async with Far(options, overlapping=overlapping) as far:
            await send_all(far, size)
            return far.segments.under_way

    return run_virtually(run)


def test_writes_at_the_same_time_have_no_more_bytes_than_the_bound() -> None:
    found = under_way(options_with(2 * MIB), 100 * KIB)
    assert 2 * MIB - 3 * 101 * KIB < max(found) <= 2 * MIB


def test_a_draft_above_the_bound_is_written_alone() -> None:
    found = under_way(options_with(2 * MIB), 1000 * KIB)
    assert min(found) == max(found) > 2 * MIB


def test_small_drafts_are_bounded_by_their_number() -> None:
    found = under_way(options_with(64 * MIB, drafts_in_flight=7), 1000)
    one = min(found)
    assert max(found) == 7 * one


@pytest.mark.parametrize("drafts_in_flight", [DEFAULTS.drafts_in_flight, 2])
def test_over_one_disk_at_most_a_few_are_written(drafts_in_flight: int) -> None:
    found = under_way(options_with(64 * MIB, drafts_in_flight), 1000, overlapping=False)
    assert max(found) == min(found) * min(LOCAL_WRITES, drafts_in_flight)


def test_what_waits_for_a_journal_that_hangs_is_bounded_too() -> None:
    async def run() -> int:
        far = Far(options_with(MIB))
        async with far:
            far.metadata.delays_s = LONG_MS / 1000, LONG_MS / 1000
            for _ in range(2 * SENT):
                far.send(size=100 * KIB)
                await asyncio.sleep(0.01)
            written = len(far.segments.begun_ms)
            far.metadata.delays_s = 0.0, 0.0
            return written

    written = run_virtually(run)
    assert COMMITS_A_WRITE * MIB - 101 * KIB < written * 100 * KIB <= COMMITS_A_WRITE * MIB


def test_puts_of_100_ms_carry_100_mb_a_second() -> None:
    """With the defaults, a batch of a megabyte every 10 ms, as one librdkafka producer sends them."""
    options = ProduceOptions(
        DEFAULTS.draft_bytes,
        DEFAULTS.draft_batches,
        DEFAULTS.drafts_in_flight,
        DEFAULTS.linger_ms,
        upload_bytes=DEFAULTS.upload_bytes,
    )

    async def run() -> list[int]:
        async with Far(options, ETCD, put_ms=100) as far:
            took: list[int] = []

            async def send() -> None:
                began = now_ms()
                await far.send(size=1_000_000).completed
                took.append(now_ms() - began)

            tasks = []
            for _ in range(200):
                tasks.append(asyncio.create_task(send()))
                await asyncio.sleep(0.01)
            await asyncio.gather(*tasks)
            return took

    assert max(run_virtually(run)) <= 100 + DEFAULTS.linger_ms + 10
