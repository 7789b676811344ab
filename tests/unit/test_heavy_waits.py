"""What a heavy request holds while it waits, and what becomes of the requests after it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest_asyncio

from gateway.handlers.offset_commit import ROWS_AT_ONCE
from gateway.network.pipeline import Peer
from gateway.router import RequestRouter
from gateway.scheduling.slices import SliceScheduler
from gateway.security.principals import ANONYMOUS
from gateway.wire.apis import ApiKey
from gateway.wire.connection import Request
from gateway.wire.errors import ErrorCode
from gateway.wire.header import RequestHeader
from gateway.wire.messages import codec
from gateway.wire.messages.generated.fetch import FetchPartition as WirePartition
from gateway.wire.messages.generated.fetch import FetchRequest as WireFetch
from gateway.wire.messages.generated.fetch import FetchTopic as WireTopic
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.metadata import MetadataRequest
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ledger.batch.records import Producer, Record, build_batch
from ledger.ports import AppendOutcome
from ledger.types import DraftBatch
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records
from tests.support.raw import Outcome, raw_connection, request

MANY = 2_000
LONG_S = 60.0
MIB = 1024 * 1024
PRODUCE_VERSION = 8


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    settings = {
        "limits.topic_partitions": "2000",
        "limits.partitions": "3000",
        "groups.group.initial.rebalance.delay.ms": "0",
    }
    async with in_memory_gateway(settings) as running:
        yield running


async def under_way(gateway: InMemoryGateway, key: ApiKey, version: int, message: Any) -> asyncio.Task[Any]:
    """A request given to the router; it has begun to wait when this returns."""
    router = RequestRouter(gateway.running.services)
    peer = Peer(7, gateway.running.listeners[0], "10.0.0.1", ANONYMOUS)
    body = memoryview(codec.encode_request(key, version, message))
    requested = Request(0, RequestHeader(int(key), version, 1, "c"), body, False)
    task = asyncio.ensure_future(router.answer(requested, peer, asyncio.get_running_loop().time()))
    await asyncio.sleep(0.3)
    return task


async def until_released(scheduler: SliceScheduler) -> None:
    """A request's lists are deleted in slices, and its memory is released after the last of them."""
    async with asyncio.timeout(LONG_S):
        while scheduler.held_bytes or scheduler.waiting:  # noqa: ASYNC110 - a test may look from outside only
            await asyncio.sleep(0)


def join(member_id: str, protocols: int) -> JoinGroupRequest:
    named = [JoinGroupRequestProtocol(f"p{i}", b"") for i in range(protocols)]
    return JoinGroupRequest("readers", 30_000, 60_000, member_id, None, "consumer", named)


async def test_a_member_that_waits_for_others_keeps_no_memory_of_heavy_requests(
    gateway: InMemoryGateway,
) -> None:
    first = await gateway.ask(ApiKey.JOIN_GROUP, 3, join("", 1))
    await gateway.ask(
        ApiKey.SYNC_GROUP,
        3,
        SyncGroupRequest(
            "readers",
            first.generation_id,
            first.member_id,
            assignments=[SyncGroupRequestAssignment(first.member_id, b"")],
        ),
    )
    second = await under_way(gateway, ApiKey.JOIN_GROUP, 3, join("", MANY))
    assert not second.done()
    assert gateway.running.services.scheduler.held_bytes == 0
    # The first joins again and leads; the second waits for its assignment.
    await gateway.ask(ApiKey.JOIN_GROUP, 3, join(first.member_id, 1))
    async with asyncio.timeout(LONG_S):
        (_, body) = (await second).buffers
    joined = codec.decode_response(ApiKey.JOIN_GROUP, 3, memoryview(body))
    nonsense = [SyncGroupRequestAssignment(f"m{i}", b"") for i in range(MANY)]
    follower = await under_way(
        gateway,
        ApiKey.SYNC_GROUP,
        3,
        SyncGroupRequest("readers", joined.generation_id, joined.member_id, assignments=nonsense),
    )
    assert not follower.done()
    assert gateway.running.services.scheduler.held_bytes == 0
    follower.cancel()


async def test_a_search_by_time_keeps_no_memory_of_heavy_requests(gateway: InMemoryGateway) -> None:
    await gateway.create("t", 1)
    await gateway.send("t", records(1))
    services, held = gateway.running.services, list[int]()
    search = services.offsets._search_all

    async def observed(*arguments: Any) -> Any:
        held.append(services.scheduler.held_bytes)
        return await search(*arguments)

    services.offsets._search_all = observed  # type: ignore[method-assign, assignment]
    questions = [ListOffsetsPartition(i, -1, 1) for i in range(MANY)]
    message = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", questions)])
    async with asyncio.timeout(LONG_S):
        await (await under_way(gateway, ApiKey.LIST_OFFSETS, 7, message))
    assert held == [0]
    await until_released(services.scheduler)


async def test_all_topics_of_a_small_cluster_need_no_memory_of_heavy_requests(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t", 1)
    scheduler = gateway.running.services.scheduler
    scheduler.held_bytes += scheduler.max_bytes
    response = await gateway.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None))
    scheduler.leave(scheduler.max_bytes)
    assert [topic.name for topic in response.topics] == ["t"]


async def test_after_a_long_produce_that_fails_no_other_of_its_connection_is_stored(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t", 700)

    def body(sequence: int, partitions: int) -> bytes:
        batch = bytes(build_batch([Record(0, 0, None, b"x", ())], producer=Producer(7, 0, sequence)))
        data = [PartitionProduceData(i, batch) for i in range(partitions)]
        message = ProduceRequest(None, -1, 5000, [TopicProduceData("t", partition_data=data)])
        return codec.encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, message)

    cut = request(int(ApiKey.PRODUCE), PRODUCE_VERSION, body(0, 700)[:-20])
    behind = request(int(ApiKey.PRODUCE), PRODUCE_VERSION, body(1, 1))

    def exchange() -> bytes | Outcome:
        with raw_connection("127.0.0.1", gateway.running.bound[0].port) as connection:
            connection.send(cut + behind)
            return connection.read_frame()

    assert await asyncio.to_thread(exchange) is Outcome.CLOSED
    await asyncio.sleep(0.1)
    log = gateway.running.services.shard.state.topics.by_name["t"].partitions[0]
    assert log.high_watermark == 0


async def test_of_a_large_commit_all_that_is_not_known_at_the_deadline_may_be_sent_again() -> None:
    settings = {"limits.topic_partitions": "9000", "limits.partitions": "9000"}
    async with in_memory_gateway({**settings, "ledger.commit_timeout_ms": "1000"}) as gateway:
        await gateway.create("t", 5 * ROWS_AT_ONCE)
        shard = gateway.running.shard
        append, may_go = shard.journal.append, asyncio.Event()
        entries = 0

        async def stalls_at_the_third(
            number: int, entry: bytes, batches: Sequence[DraftBatch] = ()
        ) -> AppendOutcome:
            nonlocal entries
            entries += 1
            if entries == 3:
                await may_go.wait()
            return await append(number, entry, batches)

        shard.journal.append = stalls_at_the_third  # type: ignore[method-assign]
        rows = [OffsetCommitRequestPartition(i, 7, -1, None) for i in range(5 * ROWS_AT_ONCE)]
        message = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=rows)])

        def committed() -> int:
            return len(gateway.running.services.group_offsets.of("g"))

        response = await gateway.ask(ApiKey.OFFSET_COMMIT, 8, message)
        codes = [ErrorCode(part.error_code).name for part in response.topics[0].partitions]
        assert codes[: 2 * ROWS_AT_ONCE] == ["NONE"] * (2 * ROWS_AT_ONCE) and committed() == 2 * ROWS_AT_ONCE
        assert codes[2 * ROWS_AT_ONCE :] == ["COORDINATOR_NOT_AVAILABLE"] * (3 * ROWS_AT_ONCE)
        # What was in the entry under way comes to be; what had not begun does not.
        may_go.set()
        async with asyncio.timeout(LONG_S):
            while committed() == 2 * ROWS_AT_ONCE:  # noqa: ASYNC110 - a test may look from outside only
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert committed() == 3 * ROWS_AT_ONCE
        again = await gateway.ask(ApiKey.OFFSET_COMMIT, 8, message)
        assert {part.error_code for part in again.topics[0].partitions} == {0}
        assert committed() == 5 * ROWS_AT_ONCE


async def test_a_request_that_has_waited_longer_than_it_may_take_still_gets_memory_for_its_response(
    gateway: InMemoryGateway,
) -> None:
    services, listener = gateway.running.services, gateway.running.listeners[0]
    peer, header = Peer(7, listener, "10.0.0.1", ANONYMOUS), RequestHeader(int(ApiKey.JOIN_GROUP), 3, 1, "c")
    body = memoryview(codec.encode_request(ApiKey.JOIN_GROUP, 3, join("", MANY)))
    longest_s = services.settings.limits.request_timeout_ms / 1000
    came_at = asyncio.get_running_loop().time() - longest_s - 1
    scheduler = services.scheduler
    scheduler.held_bytes += scheduler.max_bytes
    router = RequestRouter(services)
    joining = asyncio.create_task(router.answer(Request(0, header, body, False), peer, came_at))
    await asyncio.sleep(0.1)
    assert not joining.done()
    scheduler.leave(scheduler.max_bytes)
    async with asyncio.timeout(LONG_S):
        sent = await joining
    assert sent is not None
    _, encoded = sent.buffers
    assert codec.decode_response(ApiKey.JOIN_GROUP, 3, memoryview(encoded)).error_code == 0
    await until_released(scheduler)


async def test_a_fetch_that_is_cancelled_while_its_response_is_encoded_frees_its_bytes(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t", 1)
    await gateway.send("t", records(1))
    named = [WirePartition(partition=i, partition_max_bytes=MIB) for i in range(MANY)]
    message = WireFetch(session_epoch=-1, max_bytes=MIB, topics=[WireTopic("t", partitions=named)])
    body = memoryview(codec.encode_request(ApiKey.FETCH, 12, message))
    services = gateway.running.services
    router, budget, scheduler = RequestRouter(services), services.fetch.budget, services.scheduler
    peer = Peer(7, gateway.running.listeners[0], "10.0.0.1", ANONYMOUS)
    request = Request(0, RequestHeader(int(ApiKey.FETCH), 12, 1, "c"), body, False)
    # Cancelled in each iteration from the one on in which it gets its bytes.
    for iterations in range(1_000):
        await until_released(scheduler)
        now = asyncio.get_running_loop().time()
        fetching = asyncio.create_task(router.answer(request, peer, now))
        while not (budget.held_bytes or fetching.done()):  # noqa: ASYNC110 - a test may look from outside only
            await asyncio.sleep(0)
        for _ in range(iterations):
            await asyncio.sleep(0)
        if fetching.done():
            break
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
        assert budget.held_bytes == 0
    assert iterations > 0
    response = await fetching
    assert response is not None and response.on_sent is not None and budget.held_bytes > 0
    response.on_sent()
    assert budget.held_bytes == 0
