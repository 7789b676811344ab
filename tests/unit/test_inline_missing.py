"""What jobs find of partitions with runs inside of entries that are missing, or cannot be moved just now."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import entry_key
from gateway.housekeeping import inline_moves
from gateway.wire.error_names import ERROR_CODES
from ledger.errors import ErrorName
from ledger.inline.plan import MAX_LOOKED_AT, look_past_missing, readable_end
from ledger.inline.requests import MoveInline
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.requests import LedgerResult, Refused, Request
from pipeline.rounds import JobError
from tests.support.inline_export import Gateway, export
from tests.support.inline_world import MAX_DRAFT_BYTES, WAIT_S, InlineHost, far_metadata
from tests.support.journalled import topic_id

MISSING: Final = 3
MORE: Final = 5
Submit = Callable[[Request], "asyncio.Future[LedgerResult]"]


@pytest.fixture
async def host() -> AsyncIterator[InlineHost]:
    opened = await InlineHost(far_metadata(), MemoryBlobs()).open()
    yield opened
    await opened.close()


async def reopened(host: InlineHost) -> InlineHost:
    """Nothing of it is in memory."""
    return await InlineHost(host.metadata, host.blobs).open()


async def without_entries(host: InlineHost, before: int = 0) -> InlineHost:
    """The next gateway, whose metadata store has lost MISSING records of partition 0 after others, which were
    moved; MORE after them are in an object."""
    for number in range(before):
        await host.send(b"moved %d" % number)
    await host.mover.move()
    for number in range(MISSING):
        await host.send(b"%d" % number)
    gone = [int(name.rpartition("/")[2][:20]) for name in host.inline_entries]
    for _ in range(MORE):
        await host.send(b"x" * MAX_DRAFT_BYTES)
    again = await reopened(host)
    await again.journal.delete(gone)
    return again


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


async def exported(host: InlineHost) -> int:
    """How many batches."""
    loop_time = asyncio.get_running_loop().time
    return (await asyncio.to_thread(export, Gateway(host), loop_time)).batches


@pytest.mark.parametrize("before", [0, 2])
async def test_an_export_names_the_offsets_of_lost_entries(host: InlineHost, before: int) -> None:
    again = await without_entries(host, before)
    assert await Gateway(again).access.prepare(deadline()) is None
    with pytest.raises(JobError, match=f"t-0: offsets {before} to {before + MISSING - 1} are missing"):
        await exported(again)
    await again.delete_before(before + MISSING)
    assert await exported(again) == MORE
    await again.close()


async def test_an_export_that_goes_on_after_a_restart_names_them_too(host: InlineHost) -> None:
    """It has the pin that it has got from another gateway."""
    again = await without_entries(host)
    with pytest.raises(JobError, match=f"t-0: offsets 0 to {MISSING - 1} are missing"):
        await exported(again)
    await again.close()


async def test_a_partition_ends_for_jobs_at_what_is_not_missing(host: InlineHost) -> None:
    again = await without_entries(host)
    gateway = Gateway(again)
    assert await gateway.access.prepare(deadline()) is None
    await again.send(b"later")
    found = await gateway.find(0)
    assert found.high_watermark == found.batches[-1].last_offset + 1 == MISSING + MORE
    await again.mover.move()
    assert (await gateway.find(0)).high_watermark == MISSING + MORE + 1
    await again.close()


async def test_entries_that_are_found_again_are_moved(host: InlineHost) -> None:
    await host.send(b"0")
    (name,) = host.inline_entries
    number = int(name.rpartition("/")[2][:20])
    again = await reopened(host)
    found = await again.metadata.get(entry_key(0, number))
    assert found is not None
    await again.journal.delete([number])
    gateway = Gateway(again)
    for is_there in (False, True):
        if is_there:
            await again.metadata.put(entry_key(0, number), found.value, None)
        assert await gateway.access.prepare(deadline()) is None
        assert (await gateway.find(0)).high_watermark == 1
        assert bool(again.inline_entries) != is_there
    assert await exported(again) == 1
    await again.close()


async def test_very_many_missing_runs_are_passed_in_steps(host: InlineHost) -> None:
    for number in range(2 * MAX_LOOKED_AT + 1):
        await host.send(b"%d" % number)
    state, log = host.shard.state, host.log()
    offset: int | None = 0
    ends = list[int]()
    while offset is not None:
        look = look_past_missing(state, log, offset, state.objects.inline.keys())
        assert look.runs <= MAX_LOOKED_AT
        ends.append(look.end)
        offset = look.next_offset
    assert ends == [MAX_LOOKED_AT, 2 * MAX_LOOKED_AT, 2 * MAX_LOOKED_AT + 1]
    assert [readable_end(state, log, passed) for passed in (0, *ends)] == [0, *ends]


def before_each_move(
    host: InlineHost, monkeypatch: pytest.MonkeyPatch, act: Callable[[Submit], "asyncio.Future[LedgerResult]"]
) -> list[Request]:
    """Another request is in the entry of each move, before it. Returns the moves."""
    ask, moves = host.shard.ask, list[Request]()

    async def asking(request: Request, until: float) -> LedgerResult:
        if not isinstance(request, MoveInline):
            return await ask(request, until)
        moves.append(request)
        _, result = await asyncio.gather(act(host.shard.submit), host.shard.submit(request))
        return result

    monkeypatch.setattr(host.shard, "ask", asking)
    return moves


async def test_a_job_waits_for_a_move_that_a_drain_has_kept_from_counting(
    host: InlineHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        await host.send(b"%d" % number)
    await host.ask(DeleteRecords(topic_id(1), 0, 1))
    moves = before_each_move(host, monkeypatch, lambda submit: submit(DrainRuns(1)))
    assert await Gateway(host).access.prepare(deadline()) is None
    assert len(moves) == 2 and not host.inline_entries and not host.mover.failure
    assert await exported(host) == 3


async def test_a_job_does_not_begin_while_others_change_what_it_needs(
    host: InlineHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2 * inline_moves.CONTENDED + 1):
        await host.send(b"%d" % number)
    delete = iter(range(1, 100))

    def drain(submit: Submit) -> "asyncio.Future[LedgerResult]":
        submit(DeleteRecords(topic_id(1), 0, next(delete)))
        return submit(DrainRuns(1))

    await host.ask(DeleteRecords(topic_id(1), 0, next(delete)))
    moves = before_each_move(host, monkeypatch, drain)
    access = Gateway(host).access
    refused = await access.prepare(deadline())
    assert isinstance(refused, Refused) and refused.error is ErrorName.COORDINATOR_NOT_AVAILABLE
    assert len(moves) == inline_moves.CONTENDED and "others" in host.mover.failure
    found = await Gateway(host).find(host.log().log_start)
    assert found.error_code == ERROR_CODES[ErrorName.COORDINATOR_NOT_AVAILABLE] and not found.batches
    monkeypatch.undo()
    assert await access.prepare(deadline()) is None
    assert access.readable_end(host.log()) == host.log().high_watermark
