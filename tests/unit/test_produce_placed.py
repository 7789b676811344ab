"""Drafts that are appended with the entries that number them: what goes into which entry, and what becomes of
a draft when the journal, the disk or the gateway fails."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.coordination.free_space import FreeSpace
from gateway.produce.service import ProduceOptions
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.keys import is_log
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    DeleteRecords,
    DrainRuns,
    ReserveProducerIds,
    StaleObject,
)
from ledger.types import Placement
from tests.support.journalled import topic_id
from tests.support.placing import PlacingWorld, batch_of, turns

FAILED, OUT_OF_ORDER, UNCERTAIN = "KAFKA_STORAGE_ERROR", "OUT_OF_ORDER_SEQUENCE_NUMBER", "REQUEST_TIMED_OUT"


@pytest.fixture
async def world() -> AsyncIterator[PlacingWorld]:
    made = await PlacingWorld().open()
    yield made
    await made.close()


@pytest.fixture(params=[True, False], ids=["exclusive", "shared"])
async def any_world(request: pytest.FixtureRequest) -> AsyncIterator[PlacingWorld]:
    made = await PlacingWorld(exclusive=request.param).open()
    yield made
    await made.close()


async def test_a_draft_is_one_append_and_nothing_is_written_elsewhere(any_world: PlacingWorld) -> None:
    world = any_world
    entries, puts = world.journal.entries, world.metadata.puts
    first, second = batch_of("a", count=2), batch_of("b")
    assert await world.results(world.send(first), world.send(second)) == [0, 2]
    assert (world.journal.entries, world.metadata.puts) == (entries + 1, puts + 1)
    assert world.journal.drafts == [[first, second]] and not world.segments.drafts
    assert await world.stored() == [(0, first), (2, second)]
    (stored,) = world.shard.state.objects.by_number.values()
    assert is_log(stored.locator) and not stored.starts


async def test_batches_that_arrive_while_an_entry_is_written_share_the_next(any_world: PlacingWorld) -> None:
    world = any_world
    world.metadata.may_go.clear()
    sent = [world.send(batch_of("first"))]
    await turns()
    for n in range(5):
        # Each in an iteration of its own.
        sent.append(world.send(batch_of(f"next {n}"), partition=n % 2))
        await turns(2)
    world.metadata.may_go.set()
    await world.results(*sent)
    assert [len(draft) for draft in world.journal.drafts] == [1, 5]


async def test_a_draft_has_no_more_than_the_settings_say(world: PlacingWorld) -> None:
    await world.close()
    world.options = ProduceOptions(1 << 20, 3, 3)
    await world.open()
    world.metadata.may_go.clear()
    sent = [world.send(batch_of(f"{n}")) for n in range(8)]
    await turns()
    world.metadata.may_go.set()
    assert await world.results(*sent) == list(range(8))
    assert [len(draft) for draft in world.journal.drafts] == [3, 3, 2]


async def test_one_entry_has_other_requests_too_but_one_draft(world: PlacingWorld) -> None:
    world.metadata.may_go.clear()
    sent = [world.send(batch_of("first"))]
    await turns()
    entries = world.journal.entries
    reserved = world.shard.submit(ReserveProducerIds(5))
    sent.append(world.send(batch_of("second")))
    also = world.shard.submit(ReserveProducerIds(5))
    world.metadata.may_go.set()
    await world.results(*sent)
    await reserved
    await also
    assert world.journal.entries == entries + 2 and len(world.journal.drafts) == 2


async def test_a_draft_that_the_journal_does_not_take_is_stored_and_committed(
    any_world: PlacingWorld,
) -> None:
    world = any_world
    world.journal.most = 0
    data = batch_of("large")
    assert await world.results(world.send(data)) == [0]
    assert world.segments.drafts == [[data]] and not world.journal.drafts
    world.journal.most = 1 << 20
    assert await world.results(world.send(batch_of("small"))) == [1]
    assert len(world.journal.drafts) == 1
    assert [offset for offset, _ in await world.stored()] == [0, 1]


async def test_a_draft_without_a_place_is_stored_before_later_ones_are_placed(
    any_world: PlacingWorld,
) -> None:
    world = any_world
    world.journal.places = False
    world.segments.may_go.clear()
    first = world.send(batch_of("first"))
    await turns()
    world.journal.places = True
    second = world.send(batch_of("second"))
    await turns()
    assert not world.journal.drafts
    world.segments.may_go.set()
    assert await world.results(first, second) == [0, 1]
    assert len(world.segments.drafts) + len(world.journal.drafts) == 2


async def test_what_has_become_too_large_does_not_wait_for_the_entry(world: PlacingWorld) -> None:
    world.metadata.may_go.clear()
    sent = [world.send(batch_of("first"))]
    await turns()
    world.journal.most = 300
    sent.append(world.send(batch_of("second")))
    await turns()
    assert not world.segments.drafts
    sent.append(world.send(batch_of("x" * 500)))
    await turns()
    assert [len(draft) for draft in world.segments.drafts] == [2]
    world.metadata.may_go.set()
    assert await world.results(*sent) == [0, 1, 2]


async def test_repeats_and_refusals_are_as_of_stored_drafts(any_world: PlacingWorld) -> None:
    world = any_world
    assert await world.results(world.send(batch_of("a", 7, 0, 3))) == [0]
    entries = world.journal.entries
    assert await world.results(world.send(batch_of("a", 7, 0, 3))) == [0]
    assert await world.results(world.send(batch_of("gap", 7, 9))) == [OUT_OF_ORDER]
    assert world.journal.entries == entries, "an entry was written for a draft that was refused whole"
    again, new, gap = batch_of("a", 7, 0, 3), batch_of("b", 7, 3), batch_of("gap", 7, 9)
    assert await world.results(*map(world.send, (again, new, gap))) == [0, 3, OUT_OF_ORDER]
    assert [offset for offset, _ in await world.stored()] == [0, 3]


async def test_a_draft_that_is_refused_whole_is_not_written_with_what_else_is_in_the_entry(
    world: PlacingWorld,
) -> None:
    await world.result(world.send(batch_of("a", 7, 0)))
    world.metadata.may_go.clear()
    first = world.send(batch_of("b"))
    await turns()
    refused, reserved = world.send(batch_of("gap", 7, 9)), world.shard.submit(ReserveProducerIds(5))
    world.metadata.may_go.set()
    assert await world.results(first, refused) == [1, OUT_OF_ORDER]
    await reserved
    assert [len(draft) for draft in world.journal.drafts] == [1, 1]


async def test_a_refused_draft_leaves_its_place_to_the_next(world: PlacingWorld) -> None:
    assert await world.results(world.send(batch_of("a", 7, 0))) == [0]
    assert await world.results(world.send(batch_of("gap", 7, 5, 4))) == [OUT_OF_ORDER]
    data = batch_of("other", 7, 1, 4)
    assert await world.results(world.send(data)) == [1]
    assert (await world.stored())[1] == (1, data)
    runs = world.log().find(0, 1 << 30, 1 << 30)
    cached = [
        world.cache.get(world.position(run.object_number, 0, 0).locator, run.start, run.size) for run in runs
    ]
    assert b"".join(cached[1][0]) == data


async def test_a_certain_failure_is_one_and_the_next_draft_takes_the_place(world: PlacingWorld) -> None:
    world.metadata.failing = [StoreUnavailable("no space")]
    assert await world.results(world.send(batch_of("lost", 7, 0, 5))) == [FAILED]
    assert not len(world.cache)
    # The producer sends it again, with others before it.
    data = batch_of("plain"), batch_of("lost", 7, 0, 5)
    assert await world.results(*map(world.send, data)) == [0, 1]
    assert await world.stored() == [(0, data[0]), (1, data[1])]
    assert world.cached() == data[0] + data[1]


async def test_after_a_failure_a_new_producer_begins_with_the_batch_that_failed(world: PlacingWorld) -> None:
    world.metadata.may_go.clear()
    first = world.send(batch_of("a", 7, 0))
    await turns()
    world.metadata.failing = [StoreUnavailable("no space")]
    second = world.send(batch_of("b", 7, 1))
    world.metadata.may_go.set()
    assert await world.results(first, second) == [FAILED, OUT_OF_ORDER]
    assert await world.results(world.send(batch_of("a", 7, 0)), world.send(batch_of("b", 7, 1))) == [0, 1]


async def test_so_does_one_whose_next_batch_is_stored_elsewhere_meanwhile(world: PlacingWorld) -> None:
    world.metadata.may_go.clear()
    first = world.send(batch_of("a", 7, 0))
    await turns()
    world.journal.most = 0
    second = world.send(batch_of("b", 7, 1))
    await turns(50)
    assert world.segments.drafts, "the second draft did not go its own way"
    world.metadata.failing = [StoreUnavailable("no space")]
    world.metadata.may_go.set()
    assert await world.results(first, second) == [FAILED, OUT_OF_ORDER]


async def test_an_outcome_that_stays_unknown_is_a_timeout(any_world: PlacingWorld) -> None:
    world = any_world
    world.metadata.may_go.clear()
    sent = world.send(batch_of("a"))
    await turns()
    waiting = world.send(batch_of("b"))
    closing = world.shard.owner
    await turns()
    await closing.close()
    assert await world.results(sent, waiting) == [UNCERTAIN, FAILED]
    assert not len(world.cache)


async def test_when_the_shard_is_lost_what_waits_has_failed(world: PlacingWorld) -> None:
    await world.close()
    world.options = ProduceOptions(1 << 20, 2, 3)
    await world.open()
    await world.shard.owner.close()
    sent = [world.send(batch_of(f"{n}")) for n in range(7)]
    await world.result(sent[0])
    assert sent[2].error is None, "all of them in one iteration of the event loop"
    assert await world.results(*sent) == [FAILED] * 7


async def test_a_full_disk_refuses_a_draft_before_it_is_placed(tmp_path: Path) -> None:
    space = FreeSpace((tmp_path,), reserve_bytes=1 << 62)
    world = await PlacingWorld(space=space).open()
    try:
        sent = world.send(batch_of("a"))
        space.measure()
        assert await world.results(sent) == [FAILED]
        assert not world.journal.drafts and space.refused == 1
    finally:
        await world.close()


async def test_the_service_ends_with_what_it_has_accepted(world: PlacingWorld) -> None:
    sent = [world.send(batch_of(f"{n}")) for n in range(3)]
    await world.service.close(10)
    assert await world.results(*sent, world.send(batch_of("late"))) == [0, 1, 2, FAILED]


async def test_at_the_end_a_draft_under_way_is_unknown_and_what_waits_has_failed(world: PlacingWorld) -> None:
    world.metadata.may_go.clear()
    first = world.send(batch_of("a"))
    await turns()
    second = world.send(batch_of("b"))
    await world.service.close(0.01)
    assert await world.results(first, second) == [UNCERTAIN, FAILED]
    world.metadata.may_go.set()


async def test_a_request_that_was_given_up_is_not_appended(world: PlacingWorld) -> None:
    world.metadata.may_go.clear()
    first = world.send(batch_of("a"))
    await turns()
    second, third = world.send(batch_of("b")), world.send(batch_of("c"))
    second.completion.is_done = True
    world.metadata.may_go.set()
    assert await world.results(first, third) == [0, 1]
    assert [len(draft) for draft in world.journal.drafts] == [1, 1]


async def test_no_other_commit_may_name_a_log_file(world: PlacingWorld) -> None:
    await world.result(world.send(batch_of("a")))
    (stored,) = world.shard.state.objects.by_number.values()
    batch = CommitBatch(topic_id(1), 0, stored.size, 70, 1, 0, 0, -1, -1, -1)
    result = await world.shard.submit(CommitFile(stored.locator, stored.size + 70, [batch]))
    assert result == StaleObject()


async def test_a_log_file_that_lost_its_last_run_gets_the_next_draft(world: PlacingWorld) -> None:
    await world.result(world.send(batch_of("a")))
    (stored,) = world.shard.state.objects.by_number.values()
    await world.shard.submit(DeleteRecords(topic_id(1), 0, -1))
    await world.shard.submit(DrainRuns(10))
    assert stored.closed and world.shard.state.objects.garbage
    assert await world.results(world.send(batch_of("b"))) == [1]
    assert not stored.closed and not world.shard.state.objects.garbage
    assert stored.live_runs == 1


async def test_another_process_goes_on_in_a_file_of_its_own(world: PlacingWorld) -> None:
    data = batch_of("a"), batch_of("b")
    await world.result(world.send(data[0]))
    await world.begin_again()
    await world.result(world.send(data[1]))
    assert await world.stored() == [(0, data[0]), (1, data[1])]
    assert len(world.shard.state.objects.by_number) == 2


async def test_a_bug_in_a_placement_fails_the_draft_and_nothing_hangs(
    world: PlacingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(number: int, batches: object) -> Placement | None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.journal, "place", broken)
    assert await world.results(world.send(batch_of("a"))) in ([FAILED], [UNCERTAIN])
    assert isinstance(world.shard.broken, ZeroDivisionError)


async def test_unknown_outcomes_of_the_store_are_found_out(any_world: PlacingWorld) -> None:
    world = any_world
    world.metadata.failing = [OutcomeUnknown("lost"), OutcomeUnknown("lost")]
    assert await world.results(world.send(batch_of("a")), world.send(batch_of("b"))) == [0, 1]
    assert len(await world.stored()) == 2
