"""Fetches that follow the log: a partition that did not move is not planned again, and no move is missed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.fetch import planning
from gateway.fetch.budget import FetchBudget
from gateway.fetch.operation import FetchOptions
from gateway.fetch.reader import ReadRequest
from gateway.fetch.sessions import SessionPartition
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from gateway.wire.messages.fetch_encoding import encode_fetch_response as encoded
from ledger.partitions.state import PartitionLog
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.topics.state import Topics
from ledger.types import Buffer, Position, TopicId
from tests.support.reading import CountingSegments, batch_of, parts, reading_world, records_of, with_base

WAIT_S = 30.0
"""For what comes at once, on a busy machine too; shorter than the fetches would wait."""
A, B = batch_of(b"a"), batch_of(b"b1", b"b2")


async def parked(waiting: "asyncio.Task[FetchResponse]") -> None:
    await asyncio.sleep(0.01)
    assert not waiting.done()


async def test_partitions_at_their_end_are_planned_again_only_when_they_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[int] = []
    find = planning.find_log

    def counting(partition: SessionPartition, topics: Topics) -> PartitionLog | None:
        planned.append(partition.request.index)
        return find(partition, topics)

    async with reading_world() as world:
        await world.create(partitions=6)
        monkeypatch.setattr(planning, "find_log", counting)
        requested = [("t", partition, 0) for partition in range(6)]
        waiting = asyncio.create_task(world.fetch(*requested, max_wait_ms=60_000))
        await parked(waiting)
        assert planned == [0, 1, 2, 3, 4, 5]
        planned.clear()
        await world.produce(A, partition=4)
        fetched = parts(await waiting)
        assert [records_of(part) for part in fetched] == [b""] * 4 + [with_base(A, 0), b""]
        assert planned == [4]


async def test_a_partition_that_moved_during_the_wait_is_reported_as_it_is_now() -> None:
    async with reading_world() as world:
        topic_id = await world.create(partitions=3)
        await world.produce(A, B, partition=1)
        requested = [("t", 0, 0), ("t", 1, 3), ("t", 2, 0)]
        waiting = asyncio.create_task(world.fetch(*requested, max_wait_ms=200, min_bytes=10_000))
        await parked(waiting)
        await world.delete_records(topic_id, 1, 2)
        await world.produce(B, partition=2)
        reported = [(part.high_watermark, part.log_start_offset) for part in parts(await waiting)]
        assert reported == [(0, 0), (3, 2), (2, 0)]


async def test_a_topic_that_is_deleted_while_a_fetch_waits_at_its_end_is_reported_at_once() -> None:
    async with reading_world() as world:
        await world.create("stays")
        topic_id = await world.create("goes")
        requested = [("stays", 0, 0), ("goes", 0, 0)]
        waiting = asyncio.create_task(world.fetch(*requested, max_wait_ms=60_000))
        await parked(waiting)
        await world.delete(topic_id)
        errors = [part.error_code for part in parts(await asyncio.wait_for(waiting, WAIT_S))]
        assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_topic_that_is_created_again_in_one_iteration_is_waited_for_as_the_new_one() -> None:
    async with reading_world() as world:
        old_id, new_id = TopicId(await world.create()), TopicId(b"anew" * 4)
        waiting = asyncio.create_task(world.fetch(("t", 0, 0), max_wait_ms=60_000, min_bytes=len(A) + len(B)))
        await parked(waiting)
        world.shard.submit(DeleteTopic(old_id))
        await world.shard.submit(CreateTopic("t", new_id, 1, {}))
        await world.produce(A)
        await parked(waiting)
        await world.produce(B)
        (fetched,) = parts(await asyncio.wait_for(waiting, WAIT_S))
        assert records_of(fetched) == with_base(A, 0) + with_base(B, 1)


async def test_several_commits_in_one_iteration_are_one_response() -> None:
    async with reading_world() as world:
        await world.create(partitions=3)
        requested = [("t", partition, 0) for partition in range(3)]
        waiting = asyncio.create_task(world.fetch(*requested, max_wait_ms=60_000))
        await parked(waiting)
        await world.produce_many([("t", 0, A), ("t", 1, B), ("t", 2, A)])
        got = [records_of(part) for part in parts(await waiting)]
        assert got == [with_base(A, 0), with_base(B, 0), with_base(A, 0)]


async def test_batches_committed_while_a_fetch_reads_too_little_are_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reading_world(cache_bytes=0) as world:
        await world.create()
        await world.produce(A, A, A, A)
        reading, gate = asyncio.Event(), asyncio.Event()
        read = world.segments.read

        async def slowly(positions: Sequence[Position]) -> Sequence[Buffer | None]:
            reading.set()
            await gate.wait()
            return await read(positions)

        monkeypatch.setattr(world.segments, "read", slowly)
        fetch = world.one("t", 0, 2, max_wait_ms=60_000, min_bytes=2 * len(A) + len(B))
        waiting = asyncio.create_task(fetch)
        await reading.wait()
        # No fetch is parked in purgatory.
        assert world.fetch_service.purgatory.parked == 0
        await world.produce(B)
        gate.set()
        fetched = await asyncio.wait_for(waiting, WAIT_S)
        assert records_of(fetched) == with_base(A, 2) + with_base(A, 3) + with_base(B, 4)


async def test_reads_that_the_system_caches_are_not_cached_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for keeps_reads in (False, True):
        capabilities = replace(CountingSegments.capabilities, keeps_reads=keeps_reads)
        monkeypatch.setattr(CountingSegments, "capabilities", capabilities)
        async with reading_world(produce_to_cache=False) as world:
            await world.create()
            await world.produce(A, B)
            for _ in range(2):
                assert records_of(await world.one("t", 0, 0)) == with_base(A, 0) + with_base(B, 1)
            assert len(world.segments.reads) == (2 if keeps_reads else 1)
            assert bool(len(world.cache)) is not keeps_reads


async def test_a_share_of_the_budget_is_taken_at_once_only_if_no_fetch_waits_for_it() -> None:
    budget = FetchBudget(10)
    all_of_it = budget.acquire_now(20)
    assert all_of_it is not None and all_of_it.size == 10
    assert budget.acquire_now(1) is None
    waiting = asyncio.create_task(budget.acquire(8, asyncio.get_running_loop().time() + 10))
    await asyncio.sleep(0)
    all_of_it.release(keep=5)
    # The budget has enough for a small one, but that would overtake.
    assert budget.acquire_now(1) is None and not waiting.done()
    all_of_it.release()
    assert (await waiting).size == 8 and budget.acquire_now(2) is not None
    assert budget.held_bytes == 10


def test_an_empty_partition_is_encoded_like_one_with_records_without_the_records() -> None:
    def body(version: int, aborted: tuple[()] | None, records: list[bytes] | tuple[()]) -> bytes:
        part = FetchPartitionResponse(3, 0, 70, 60, 50, aborted, records=records)
        response = FetchResponse([FetchTopicResponse("t", b"i" * 16, [part])])
        return b"".join(encoded(version, response))

    for version in range(12, 19):
        for aborted in ((), None):
            empty, one = body(version, aborted, ()), body(version, aborted, [b"r"])
            assert one.replace(b"\x02r", b"\x01") == empty


async def test_a_round_holds_no_more_with_what_was_written_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of the budget is for both: what is taken at once, and what is read."""
    large = batch_of(bytes(1_000))
    async with reading_world(FetchOptions(round_bytes=len(large) + 50)) as world:
        await world.create(partitions=2)
        for partition in range(2):
            await world.produce(large, partition=partition)
        run = world.log(partition=1).find(0, 1, 1)[0]
        world.cache.discard_written(world.shard.state.objects.by_number[run.object_number].locator, run.start)
        reader, most = world.fetch_service.reader, list[int]()
        read = reader.read

        def noted(reads: Sequence[ReadRequest], max_bytes: int, *others: Any) -> Any:
            most.append(max_bytes)
            return read(reads, max_bytes, *others)

        monkeypatch.setattr(reader, "read", noted)
        fetched = parts(await world.fetch(("t", 0, 0), ("t", 1, 0)))
        assert [records_of(part) for part in fetched] == [with_base(large, 0)] * 2
        assert most[0] == 50
