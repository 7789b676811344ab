"""Fetches and sessions of many partitions: what they plan, how they share the event loop, their memory."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.fetch.budget import NO_OWNER
from gateway.fetch.operation import FetchOperation, FetchOptions
from gateway.fetch.partition_memory import PartitionMemory
from gateway.fetch.purgatory import ParkedFetch
from gateway.fetch.service import PARTITION_BYTES, run_fetch
from gateway.fetch.sessions import (
    MAX_SESSION_PARTITIONS,
    MAX_SESSION_UNKNOWN,
    MIN_QUIET_PARTITIONS,
    FetchContext,
    FetchKind,
    SessionPartition,
)
from gateway.scheduling.slices import Owner, Slices, SliceScheduler
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from gateway.wire.messages.generated.fetch import FetchPartition as WirePartition
from gateway.wire.messages.generated.fetch import FetchRequest as WireRequest
from gateway.wire.messages.generated.fetch import FetchTopic as WireTopic
from gateway.wire.primitives import ZERO_UUID
from tests.support.in_memory import in_memory_gateway, records
from tests.support.quiet import as_if_quiet
from tests.support.reading import (
    MIB,
    PRINCIPAL,
    ReadingWorld,
    batch_of,
    parts,
    reading_world,
    records_of,
    with_base,
)

WAIT_S = 30.0
"""For what comes at once, on a busy machine too; shorter than the fetches would wait."""
A, B = batch_of(b"a"), batch_of(b"b")
LARGE = 2 * MIN_QUIET_PARTITIONS


class OneRequest:
    """Shares the event loop with no other, and counts what it takes."""

    def __init__(self) -> None:
        self.slices = Slices(SliceScheduler(), NO_OWNER)


async def fetch_all(
    world: ReadingWorld,
    count: int,
    session: tuple[int, int] = (0, 0),
    topics: Sequence[str] = ("t",),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    owner: Owner = NO_OWNER,
) -> FetchResponse:
    """The first partitions of each of the topics, from their beginning."""
    named = [
        FetchTopic(topic, ZERO_UUID, [FetchPartition(i, -1, 0, -1, -1, MIB) for i in range(count)])
        for topic in topics
    ]
    request = FetchRequest(max_wait_ms, min_bytes, 50 * MIB, 0, *session, named, [])
    return await sent_at_once(world, request, owner=owner)


async def sent_at_once(world: ReadingWorld, request: FetchRequest, **options: Any) -> FetchResponse:
    now = asyncio.get_running_loop().time()
    fetched = await world.fetch_service.fetch(12, request, PRINCIPAL, now, **options)
    if fetched.on_sent is not None:
        fetched.on_sent()
    return fetched.response


def indexes(response: FetchResponse) -> list[int]:
    return [part.index for part in parts(response)]


def quiet_of(world: ReadingWorld, session_id: int) -> int:
    return len(world.fetch_service.sessions._sessions[session_id].quiet)


async def test_a_partition_that_was_reported_to_its_end_is_not_planned_until_it_moves() -> None:
    async with reading_world() as world:
        topic_id = await world.create(partitions=LARGE)
        session_id = (await fetch_all(world, LARGE)).session_id
        assert quiet_of(world, session_id) == LARGE
        assert indexes(await world.fetch(session=(session_id, 1))) == []
        await world.produce(A, partition=70)
        assert indexes(await world.fetch(session=(session_id, 2))) == [70]
        # It was not read on, and so is offered again; where it was, it is quiet again.
        assert indexes(await world.fetch(session=(session_id, 3))) == [70]
        assert quiet_of(world, session_id) == LARGE - 1
        assert indexes(await world.fetch(("t", 70, 1), session=(session_id, 4))) == []
        assert quiet_of(world, session_id) == LARGE
        # A partition that the client names again is planned, though it has not moved.
        assert indexes(await world.fetch(("t", 70, 0), session=(session_id, 5))) == [70]
        assert indexes(await world.fetch(("t", 70, 1), session=(session_id, 6))) == []
        await world.produce(B, partition=70)
        await world.delete_records(topic_id, 70, 2)
        (part,) = parts(await world.fetch(session=(session_id, 7)))
        assert (part.index, part.error_code) == (70, ErrorCode.OFFSET_OUT_OF_RANGE)


async def test_a_parked_fetch_is_woken_by_a_quiet_partition_that_moves_or_is_deleted() -> None:
    async with reading_world() as world:
        topic_id = await world.create(partitions=LARGE)
        session_id = (await fetch_all(world, LARGE)).session_id
        parked = asyncio.create_task(world.fetch(session=(session_id, 1), max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        assert not parked.done() and quiet_of(world, session_id) == LARGE
        await world.produce(A, partition=99)
        (part,) = parts(await asyncio.wait_for(parked, WAIT_S))
        assert part.index == 99 and records_of(part) == with_base(A, 0)
        await world.fetch(("t", 99, 1), session=(session_id, 2))
        parked = asyncio.create_task(world.fetch(session=(session_id, 3), max_wait_ms=60_000, min_bytes=200))
        await asyncio.sleep(0.01)
        # Too little.
        await world.produce(A, partition=3)
        await asyncio.sleep(0.01)
        assert not parked.done()
        await world.delete(topic_id)
        errors = {part.error_code for part in parts(await asyncio.wait_for(parked, WAIT_S))}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_parked_fetch_adds_up_the_bytes_of_quiet_partitions_that_moved() -> None:
    async with reading_world() as world:
        await world.create(partitions=LARGE)
        session_id = (await fetch_all(world, LARGE)).session_id
        fetching = world.fetch(session=(session_id, 1), max_wait_ms=60_000, min_bytes=2 * len(A))
        parked = asyncio.create_task(fetching)
        await asyncio.sleep(0.01)
        await world.produce(A, partition=5)
        await asyncio.sleep(0.01)
        assert not parked.done()
        await world.produce(B, partition=90)
        fetched_parts = parts(await asyncio.wait_for(parked, WAIT_S))
        assert [(part.index, records_of(part)) for part in fetched_parts] == [
            (5, with_base(A, 0)),
            (90, with_base(B, 0)),
        ]


async def test_partitions_that_leave_a_session_or_end_with_it_are_watched_no_longer() -> None:
    async with reading_world() as world:
        await world.create(partitions=LARGE)
        sessions = world.fetch_service.sessions
        session_id = (await fetch_all(world, LARGE)).session_id
        await world.fetch(session=(session_id, 1), forget=[("t", 1), ("t", 2)])
        await world.produce(A, partition=1)
        assert indexes(await world.fetch(session=(session_id, 2))) == []
        assert len(sessions._watched) == quiet_of(world, session_id) == LARGE - 2
        await world.fetch(session=(session_id, -1))
        assert not sessions._watched and not len(sessions)


@pytest.mark.serial
async def test_a_fetch_of_the_largest_session_costs_what_has_moved() -> None:
    async with reading_world() as world:
        await world.create(partitions=MAX_SESSION_PARTITIONS)
        session_id = (await fetch_all(world, MAX_SESSION_PARTITIONS)).session_id
        assert session_id
        began = time.process_time()
        for epoch in range(1, 101):
            assert parts(await world.fetch(session=(session_id, epoch))) == []
        assert as_if_quiet(time.process_time() - began) < 0.2


async def test_a_fetch_of_more_partitions_gets_no_session_and_all_its_partitions() -> None:
    async with reading_world() as world:
        names = ["t", "u", "v"]
        for name in names:
            await world.create(name, partitions=MAX_SESSION_PARTITIONS)
        await world.produce(A, name="u", partition=9_999)
        turns = 0

        def count() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(count)

        count()
        response = await fetch_all(world, MAX_SESSION_PARTITIONS, topics=names)
        assert turns > 5
        assert response.session_id == 0 and response.error_code == 0
        assert [len(topic.partitions) for topic in response.topics] == 3 * [MAX_SESSION_PARTITIONS]
        filled = [(part.index, records_of(part)) for part in parts(response) if part.records]
        assert filled == [(9_999, with_base(A, 0))]
        assert world.fetch_service.partition_memory.held_bytes == 0
        # An incremental one that names as many is too large for its session, which goes.
        session_id = (await fetch_all(world, 10)).session_id
        response = await fetch_all(world, MAX_SESSION_PARTITIONS, (session_id, 1), names)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not len(world.fetch_service.sessions)


async def test_the_partitions_of_a_very_large_fetch_are_taken_in_slices() -> None:
    many = 20_000
    async with reading_world() as world:
        sliced = OneRequest()
        requested = [SessionPartition("t", b"", FetchPartition(i, -1, 0, -1, -1, MIB)) for i in range(many)]
        context = FetchContext(FetchKind.SESSIONLESS, False, PRINCIPAL, requested)
        request = FetchRequest(0, 1, MIB, 0, 0, -1, [], [])
        operation = FetchOperation(world.fetch_service, request, context, 0.0, NO_OWNER, sliced)
        assert operation.partitions == [] and sliced.slices.weight == 0
        await world.create(partitions=10)
        fetched = await run_fetch(operation)
        assert [part.partition for part in fetched] == requested
        # Once to take them, and twice to plan them, since it is confirmed which of them do not exist.
        assert sliced.slices.weight >= 3 * many


async def test_a_large_fetch_waits_and_misses_no_commit_between_its_slices() -> None:
    async with reading_world() as world:
        await world.create(partitions=5_000)
        for partition in (0, 2_500, 4_999):
            for turns in (1, 3, 10, 50):
                before = world.log(partition=partition).high_watermark
                end = FetchPartition(partition, -1, before, -1, -1, MIB)
                named = [FetchPartition(i, -1, 0, -1, -1, MIB) for i in range(3, 2_000)]
                topics = [FetchTopic("t", ZERO_UUID, [*named, end])]
                request = FetchRequest(60_000, 1, 50 * MIB, 0, 0, -1, topics, [])
                parked = asyncio.create_task(sent_at_once(world, request))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await world.produce(A, partition=partition)
                fetched_parts = parts(await asyncio.wait_for(parked, WAIT_S))
                assert records_of(fetched_parts[-1]) == with_base(A, before)
        assert world.fetch_service.purgatory.parked == 0 and not world.fetch_service.purgatory._waiting


async def test_a_fetch_for_which_very_many_quiet_partitions_moved_is_worked_off_in_slices() -> None:
    many = 2_000
    async with reading_world() as world:
        await world.create(partitions=many)
        session_id = (await fetch_all(world, many)).session_id
        assert quiet_of(world, session_id) == many
        sliced = OneRequest()
        request = FetchRequest(60_000, many * len(A), 50 * MIB, 0, session_id, 1, [], [])
        parked = asyncio.create_task(sent_at_once(world, request, sliced=sliced))
        await asyncio.sleep(0.01)
        assert sliced.slices.weight == 0
        await world.produce_many([("t", i, A) for i in range(many)])
        assert indexes(await asyncio.wait_for(parked, WAIT_S)) == list(range(many))
        assert sliced.slices.weight >= 2 * many


async def test_many_unknown_partitions_get_no_session_and_many_deleted_ones_end_theirs() -> None:
    async with reading_world() as world:
        assert (await fetch_all(world, MAX_SESSION_UNKNOWN + 1)).session_id == 0
        assert (await fetch_all(world, MAX_SESSION_UNKNOWN)).session_id > 0
        topic_id = await world.create("u", partitions=MAX_SESSION_UNKNOWN + 1)
        session_id = (await fetch_all(world, MAX_SESSION_UNKNOWN + 1, topics=["u"])).session_id
        assert session_id
        await world.delete(topic_id)
        gone = parts(await world.fetch(session=(session_id, 1)))
        assert {part.error_code for part in gone} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        again = await world.fetch(session=(session_id, 2))
        assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_large_fetches_that_wait_are_charged_and_further_ones_wait_for_their_memory() -> None:
    options = FetchOptions(partitions_in_memory=1_000, ledger_wait_s=0.2)
    async with reading_world(options) as world:
        await world.create(partitions=600)
        parked = [
            asyncio.create_task(
                fetch_all(world, 400, (0, -1), max_wait_ms=60_000, owner=Owner(i, "127.0.0.1"))
            )
            for i in range(2)
        ]
        await asyncio.sleep(0.05)
        assert world.fetch_service.partition_memory.held_bytes == 800 * PARTITION_BYTES
        third = await fetch_all(world, 400, (0, -1), owner=Owner(3, "127.0.0.1"))
        assert third.topics == () and third.throttle_time_ms > 0 and third.error_code == 0
        # A small one has no need to wait.
        assert len(parts(await fetch_all(world, 100, (0, -1)))) == 100
        await world.produce(A)
        for waiting in parked:
            assert len(parts(await waiting)) == 400
        assert len(parts(await fetch_all(world, 400, (0, -1)))) == 400
        assert world.fetch_service.partition_memory.held_bytes == 0


async def test_parked_fetches_end_early_for_one_that_gets_no_memory_the_longest_parked_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.fetch.partition_memory.SHED_AFTER_S", 0.3)
    async with reading_world(FetchOptions(partitions_in_memory=1_000)) as world:
        await world.create(partitions=600)

        async def parked(connection: int) -> asyncio.Task[FetchResponse]:
            fetching = fetch_all(world, 300, (0, -1), max_wait_ms=60_000, owner=Owner(connection, "10.0.0.1"))
            task = asyncio.create_task(fetching)
            await asyncio.sleep(0.05)
            return task

        waiting = [await parked(connection) for connection in range(3)]
        assert world.fetch_service.partition_memory.held_bytes == 900 * PARTITION_BYTES
        # Two of them are enough for it, and they end as if their wait was over.
        async with asyncio.timeout(WAIT_S):
            other = await fetch_all(world, 500, (0, -1), owner=Owner(9, "10.9.0.1"))
        assert len(parts(other)) == 500 and not other.throttle_time_ms
        async with asyncio.timeout(WAIT_S):
            shed = await asyncio.gather(*waiting[:2])
        assert {(response.error_code, len(parts(response))) for response in shed} == {(0, 300)}
        # While none waits for memory none has to go, however long it is parked.
        await asyncio.sleep(0.5)
        assert not waiting[2].done()
        await world.produce(A)
        assert len(parts(await waiting[2])) == 300
        assert world.fetch_service.partition_memory.held_bytes == 0


async def test_no_more_fetches_end_early_while_the_ended_ones_still_hold_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.fetch.partition_memory.SHED_AFTER_S", 0.0)
    monkeypatch.setattr("gateway.fetch.partition_memory.CHECK_EVERY_S", 0.01)
    kept, now = PartitionMemory(1_000), asyncio.get_running_loop().time()
    shares = [await kept.acquire(500, now, Owner(i, "10.0.0.1")) for i in range(2)]
    first, second = ParkedFetch((), None), ParkedFetch((), None)
    with kept.parked(second, shares[1]):
        kept._parked = {first: (now, shares[0])} | kept._parked
        other = asyncio.create_task(kept.acquire(400, now + 5, Owner(9, "10.9.0.1")))
        await first.woken
        # It waits no longer, and works on its response.
        del kept._parked[first]
        await asyncio.sleep(0.1)
        assert first.woken.done() and not second.woken.done()
        shares[0].release()
        (await other).release()
    shares[1].release()
    assert kept.held_bytes == 0


async def test_a_fetch_that_was_just_parked_does_not_end_early() -> None:
    async with reading_world(FetchOptions(partitions_in_memory=1_000, ledger_wait_s=0.5)) as world:
        await world.create(partitions=800)
        owner = Owner(1, "10.0.0.1")
        parked = asyncio.create_task(fetch_all(world, 800, (0, -1), max_wait_ms=60_000, owner=owner))
        await asyncio.sleep(0.05)
        other = await fetch_all(world, 400, (0, -1), owner=Owner(2, "10.9.0.1"))
        assert other.throttle_time_ms and not parked.done()
        parked.cancel()


@pytest.mark.parametrize("count", [MIN_QUIET_PARTITIONS - 1, MIN_QUIET_PARTITIONS])
async def test_sessions_respond_alike_whether_or_not_they_have_quiet_partitions(count: int) -> None:
    async with reading_world() as world:
        await world.create(partitions=count)
        session_id = (await fetch_all(world, count)).session_id
        await world.produce_many([("t", 1, A), ("t", 7, B)])
        first = await world.fetch(session=(session_id, 1), max_bytes=len(A))
        assert [(part.index, records_of(part)) for part in parts(first)] == [(1, with_base(A, 0)), (7, b"")]
        # That which got nothing comes first now.
        second = await world.fetch(("t", 1, 1), session=(session_id, 2), max_bytes=len(A))
        assert [(part.index, records_of(part)) for part in parts(second)] == [(7, with_base(B, 0))]
        assert indexes(await world.fetch(("t", 7, 1), session=(session_id, 3))) == []


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
async def test_each_of_many_partitions_that_do_not_exist_gets_its_error(version: int) -> None:
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS

    def topic(name: str, topic_id: bytes, indexes: range) -> WireTopic:
        named = [WirePartition(partition=i, partition_max_bytes=MIB) for i in indexes]
        return WireTopic("" if by_id else name, topic_id if by_id else ZERO_UUID, named)

    async with in_memory_gateway() as gateway:
        topic_id = await gateway.create("t", 3)
        await gateway.send("t", records(1), partition=2)
        topics = [
            topic("none", b"n" * 16, range(1_500)),
            topic("t", topic_id, range(-2, 900)),
            topic("none either", b"e" * 16, range(300)),
        ]
        request = WireRequest(max_wait_ms=5_000, min_bytes=1, max_bytes=MIB, session_epoch=-1, topics=topics)
        response = await gateway.ask(ApiKey.FETCH, version, request)
    fetched_parts = [
        (part.partition_index, part.error_code, len(part.records or b"") > 0, found.topic or found.topic_id)
        for found in response.responses
        for part in found.partitions
    ]
    none, either, t = (b"n" * 16, b"e" * 16, topic_id) if by_id else ("none", "none either", "t")
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    outside = [i for i in range(-2, 900) if i not in range(3)]
    assert fetched_parts == [
        *[(i, 0, i == 2, t) for i in range(3)],
        *[(i, unknown, False, none) for i in range(1_500)],
        *[(i, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, t) for i in outside],
        *[(i, unknown, False, either) for i in range(300)],
    ]


async def test_a_few_partitions_that_do_not_exist_stay_in_the_session() -> None:
    async with in_memory_gateway() as gateway:
        await gateway.create("t", 3)

        async def ask(count: int, session: tuple[int, int]) -> Any:
            named = [WirePartition(partition=i, partition_max_bytes=MIB) for i in range(count)]
            topics = [WireTopic("t", ZERO_UUID, named)] if count else []
            request = WireRequest(session_id=session[0], session_epoch=session[1], topics=topics)
            return await gateway.ask(ApiKey.FETCH, 12, request)

        full = await ask(700, (0, 0))
        errors = [part.error_code for topic in full.responses for part in topic.partitions]
        assert full.session_id and errors == 3 * [0] + 697 * [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        again = await ask(0, (full.session_id, 1))
        assert [len(topic.partitions) for topic in again.responses] == [697]


@pytest.mark.serial
async def test_a_fetch_sees_a_commit_to_its_last_quiet_partition_while_it_prepared_to_wait() -> None:
    async with reading_world() as world:
        await world.create(partitions=64)
        for index in range(63):
            await world.produce(batch_of(b"a"), partition=index)
        # The last partition exists and is at its end, so it alone is quiet; one does not exist.
        named = [("t", index, 0) for index in range(65)]
        opened = await world.fetch(*named, version=12, session=(0, 0), min_bytes=0)
        proof, came = world.fetch_service.is_newest, 0

        async def slow_proof() -> bool:
            nonlocal came
            came += 1
            if came == 1:
                await world.produce(batch_of(b"x" * 20_000), partition=63)
            return await proof()

        world.fetch_service.is_newest = slow_proof  # type: ignore[method-assign]
        began = time.perf_counter()
        session = opened.session_id, 1
        fetched = await world.fetch(version=12, session=session, min_bytes=15_000, max_wait_ms=4_000)
        assert came
        assert sum(len(records_of(part)) for part in parts(fetched)) > 20_000
        assert time.perf_counter() - began < 2.0
