"""A ledger that goes on in another journal has no pins: a job from before begins again."""

import asyncio

import pytest

from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.recovery import recover
from gateway.coordination.shard import Shard
from gateway.offline.backup import read_backup, restore_backup, write_backup
from gateway.offline.move import LedgerMove
from gateway.offline.move_plan import plan_move
from ledger.errors import ErrorName
from ledger.image import all_rows
from ledger.requests import LedgerResult, Refused, Request
from ledger.rows import digest
from ledger.swaps.requests import Pinned, Swapped, SwapSegments, TakePin
from ledger.swaps.state import Pins
from tests.support.movable import InMemory, empty_target, ledger_with_records
from tests.support.shards import open_shard
from tests.support.swapping import JOB, swap_of

NOW_MS = 1_700_001_000_000
OTHER = b"o" * 16


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> InMemory:
    return asyncio.run(ledger_with_records(tmp_path_factory.mktemp("ledger")))


@pytest.fixture
def source(built: InMemory) -> InMemory:
    return built.clone()


async def opened(stores: InMemory) -> Shard:
    return await open_shard(stores.metadata, stores.blobs, None, 1, lambda: NOW_MS)


async def ask(shard: Shard, request: Request) -> LedgerResult:
    return await shard.ask(request, asyncio.get_running_loop().time() + 10.0)


async def with_a_plan(stores: InMemory) -> tuple[Pinned, SwapSegments]:
    """Two jobs have pins, and one of them has written its segment."""
    shard = await opened(stores)
    await ask(shard, TakePin(OTHER))
    pinned = await ask(shard, TakePin(JOB))
    assert isinstance(pinned, Pinned)
    log = shard.state.topics.by_name["t"].partitions[0]
    planned = swap_of(log, list(log.runs()), NOW_MS)
    await shard.close()
    return pinned, planned


async def check_that_the_job_begins_again(stores: InMemory, pinned: Pinned, planned: SwapSegments) -> None:
    shard = await opened(stores)
    assert not shard.state.part(Pins)
    before = digest(all_rows(shard.state))
    refused = await ask(shard, planned)
    assert isinstance(refused, Refused) and refused.error is ErrorName.UNKNOWN_MEMBER_ID
    assert digest(all_rows(shard.state)) == before
    again = await ask(shard, TakePin(JOB))
    # By which a job finds out that its first pin was lost.
    assert isinstance(again, Pinned) and again.entry != pinned.entry
    await shard.close()


async def test_after_a_restore_the_swaps_of_earlier_jobs_are_refused(source: InMemory) -> None:
    pinned, planned = await with_a_plan(source)
    place, backup = source.place(), empty_target().blobs
    await write_backup(place.journal, await recover(place.journal, None, place.blobs), backup, NOW_MS)
    found = await read_backup(backup)
    assert set(found.state.part(Pins)) == {JOB, OTHER}
    restored = InMemory(MemoryMetadata(), source.blobs)
    journal = MetadataJournal(restored.metadata, 0)
    await restore_backup(found, journal, restored.blobs, None, place.segments, NOW_MS)
    await check_that_the_job_begins_again(restored, pinned, planned)


async def test_after_a_move_the_swaps_of_earlier_jobs_are_refused(source: InMemory) -> None:
    pinned, planned = await with_a_plan(source)
    # It would have been taken there.
    shard = await opened(source.clone())
    assert isinstance(await ask(shard, planned), Swapped)
    await shard.close()
    target, place = empty_target(), source.place()
    recovered = await recover(place.journal, None, place.blobs)
    plan = await plan_move(recovered.state, place.segments)
    moving = LedgerMove(place, target.place(), "etcd://host/p", "s3://bucket/p", lambda: NOW_MS)
    assert (await moving.run(recovered, plan, lambda _: None)).moved
    await check_that_the_job_begins_again(target, pinned, planned)
