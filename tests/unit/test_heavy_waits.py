"""What a heavy request keeps while it waits for others, and what becomes of the requests behind one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from gateway.connection import Peer
from gateway.fetch.budget import give_back_at_once
from gateway.router import RequestRouter
from gateway.wire.apis import ApiKey
from gateway.wire.connection import Request
from gateway.wire.header import RequestHeader
from gateway.wire.messages import codec
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.metadata import MetadataRequest
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ledger.batch.records import Producer, Record, build_batch
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records
from tests.support.raw import Outcome, raw_connection, request

MANY = 2_000
LONG_S = 5.0
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
    peer = Peer(7, gateway.running.listeners[0], "10.0.0.1")
    body = memoryview(codec.encode_request(key, version, message))
    asked = Request(0, RequestHeader(int(key), version, 1, "c"), body, False)
    task = asyncio.ensure_future(
        router.answer(asked, peer, asyncio.get_running_loop().time(), give_back_at_once)
    )
    await asyncio.sleep(0.3)
    return task


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
        (_, body) = await second
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

    services.offsets._search_all = observed  # type: ignore[method-assign]
    questions = [ListOffsetsPartition(i, -1, 1) for i in range(MANY)]
    message = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", questions)])
    async with asyncio.timeout(LONG_S):
        await (await under_way(gateway, ApiKey.LIST_OFFSETS, 7, message))
    assert held == [0]
    assert services.scheduler.held_bytes == 0


async def test_all_topics_of_a_small_cluster_need_no_memory_of_heavy_requests(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t", 1)
    scheduler = gateway.running.services.scheduler
    scheduler.held_bytes += scheduler.max_bytes
    response = await gateway.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None))
    scheduler.leave(scheduler.max_bytes)
    assert [topic.name for topic in response.topics] == ["t"]


async def test_behind_a_long_produce_that_fails_no_other_of_its_connection_is_stored(
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
