"""Fetches that wait for a partition are woken in the order in which they came, at whatever address."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.fetch.purgatory import ParkedFetch, Purgatory
from ledger.partitions.state import PartitionLog
from ledger.types import TopicId

FETCHES = 60
LONG_S = 60.0


def touch(purgatory: Purgatory, log: PartitionLog) -> None:
    purgatory.touched([log])


def close(purgatory: Purgatory, _: PartitionLog) -> None:
    purgatory.close()


@pytest.mark.parametrize("end", [touch, close])
async def test_the_first_to_wait_is_the_first_to_be_woken(
    end: Callable[[Purgatory, PartitionLog], None],
) -> None:
    purgatory, log, woken = Purgatory(), PartitionLog(1, TopicId(bytes(16)), 0), list[int]()
    deadline = asyncio.get_running_loop().time() + LONG_S

    async def wait(number: int) -> None:
        await purgatory.park(ParkedFetch([log], None), deadline)
        woken.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(FETCHES)]
    await asyncio.sleep(0)
    end(purgatory, log)
    await asyncio.gather(*waiting)
    assert woken == list(range(FETCHES))
