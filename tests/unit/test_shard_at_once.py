"""An entry for a draft that comes alone is begun without a step of the owner's task, which ends it if
there is something to wait for."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.coordination.begun import Begun
from ledger.errors import StoreUnavailable
from ledger.partitions.requests import ReserveProducerIds
from tests.support.placing import PlacingWorld, batch_of, turns

UNCERTAIN, FAILED = "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR"


@pytest.fixture
async def world() -> AsyncIterator[PlacingWorld]:
    made = await PlacingWorld().open()
    yield made
    await made.close()


async def test_a_draft_alone_is_appended_in_the_next_callback_and_in_no_task(world: PlacingWorld) -> None:
    await turns()
    sent = world.send(batch_of("a"))
    assert not world.journal.drafts
    await turns(1)
    assert world.journal.appended_in == [None]
    assert await world.results(sent) == [0]


async def test_an_append_that_has_to_wait_is_ended_by_the_owners_task(world: PlacingWorld) -> None:
    await turns()
    world.metadata.may_go.clear()
    sent = [world.send(batch_of("first"))]
    await turns()
    sent.append(world.send(batch_of("second")))
    await turns()
    assert not world.journal.drafts
    world.metadata.may_go.set()
    assert await world.results(*sent) == [0, 1]
    assert world.journal.appended_in[0] is not None
    # The task has nothing more to do.
    await turns()
    assert await world.results(world.send(batch_of("third"))) == [2]
    assert world.journal.appended_in[-1] is None


async def test_what_comes_together_with_a_draft_shares_its_entry(world: PlacingWorld) -> None:
    await turns()
    entries = world.journal.entries
    sent = world.send(batch_of("a"))
    reserved = world.shard.submit(ReserveProducerIds(5))
    assert await world.results(sent) == [0]
    await reserved
    assert world.journal.entries == entries + 1


async def test_a_failure_at_once_fails_the_draft_and_the_next_one_goes(world: PlacingWorld) -> None:
    await turns()
    world.metadata.failing.append(StoreUnavailable("full"))
    assert await world.results(world.send(batch_of("a"))) == [FAILED]
    assert await world.results(world.send(batch_of("b"))) == [0]


async def test_the_outcome_of_an_entry_that_was_begun_is_unknown_when_the_owner_ends(
    world: PlacingWorld,
) -> None:
    await turns()
    world.metadata.may_go.clear()
    sent = world.send(batch_of("a"))
    await turns(1)
    # Before the task has taken it over.
    await world.shard.close()
    assert await world.results(sent) == [UNCERTAIN]


async def test_what_was_begun_raises_in_its_awaiter_and_goes_on_where_it_waits() -> None:
    steps: list[str] = []
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work(error: Exception | None) -> None:
        steps.append("begun")
        if error is not None:
            raise error
        await gate
        steps.append("ended")

    failed = Begun(work(ValueError("at once")))
    assert not failed.is_done
    with pytest.raises(ValueError, match="at once"):
        await failed
    begun = Begun(work(None))
    assert steps == ["begun", "begun"] and not begun.is_done
    asyncio.get_running_loop().call_soon(gate.set_result, None)
    await begun
    assert begun.is_done and steps[-1] == "ended"
