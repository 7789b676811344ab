"""Producer ids: never twice, through concurrency, failures and restarts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.shard import Shard
from gateway.produce import producer_ids as producer_ids_module
from gateway.produce.producer_ids import ProducerIds
from ledger.errors import StoreUnavailable
from ledger.ports import MetadataStore
from tests.support.faulty import Fault, Faults, FaultyMetadata
from tests.support.held_stores import HeldMetadata
from tests.support.shards import open_shard

WAIT_S = 20.0


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert producer_ids_module.BLOCK == 1_000
    monkeypatch.setattr(producer_ids_module, "BLOCK", 3)


@pytest.fixture
async def shards() -> AsyncIterator[list[Shard]]:
    opened: list[Shard] = []
    yield opened
    for shard in opened:
        await shard.close()


async def ids_over(store: MetadataStore, shards: list[Shard]) -> ProducerIds:
    for shard in shards:
        await shard.close()
    shards.append(await open_shard(store, None, None, 1, lambda: 1_000))
    return ProducerIds(shards[-1])


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


async def test_ids_taken_at_once_are_all_different(shards: list[Shard]) -> None:
    ids = await ids_over(MemoryMetadata(), shards)
    taken = await asyncio.gather(*[ids.take(deadline()) for _ in range(20)])
    assert sorted(taken) == list(range(20))
    # A block an entry: seven of three, after the epoch's first.
    assert shards[0].state.applied == 8


async def test_a_restart_continues_after_the_blocks_that_were_reserved(shards: list[Shard]) -> None:
    store = MemoryMetadata()
    first = [await (await ids_over(store, shards)).take(deadline()) for _ in range(3)]
    assert first == [0, 3, 6]


@pytest.mark.parametrize("fault", [Fault.ERROR_AFTER, Fault.NEVER_SENT, Fault.LATE])
async def test_a_reservation_of_unknown_outcome_gives_no_id_twice(fault: Fault, shards: list[Shard]) -> None:
    store = FaultyMetadata(MemoryMetadata(), Faults(2, fault, times=2, only=["put"]))
    ids = await ids_over(store, shards)
    taken = [await ids.take(deadline()) for _ in range(7)]
    taken += [await (await ids_over(store, shards)).take(deadline())]
    assert len(set(taken)) == 8


async def test_a_reservation_that_failed_is_made_again_for_the_next_caller(shards: list[Shard]) -> None:
    store = FaultyMetadata(MemoryMetadata(), Faults(2, Fault.ERROR_BEFORE, only=["put"]))
    ids = await ids_over(store, shards)
    with pytest.raises(StoreUnavailable):
        await ids.take(deadline())
    assert await ids.take(deadline()) == 0


async def test_a_caller_waits_for_a_block_until_its_deadline_and_no_longer(shards: list[Shard]) -> None:
    held = HeldMetadata(MemoryMetadata())
    ids = await ids_over(held, shards)
    held.hold()
    waiting = asyncio.create_task(ids.take(deadline()))
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await ids.take(asyncio.get_running_loop().time() + 0.01)
    held.release()
    taken = [await waiting, await ids.take(deadline())]
    assert len(set(taken)) == 2
