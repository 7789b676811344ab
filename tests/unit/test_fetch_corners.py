"""Fetch and ListOffsets requests that no client library sends, with the responses of Kafka 4.3.1."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from gateway.addresses import Address
from gateway.assembly import RunningGateway, running_gateway
from gateway.cli.client import Client
from gateway.config import load_settings
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Record, build_batch

IN_MEMORY = {
    "listeners.listen": "PLAINTEXT://127.0.0.1:0",
    "admin.listen": "",
    "storage.metadata": "memory:",
    "storage.data": "memory:",
    "storage.allow_unsafe_acks": "true",
}
VERSION = 11
MIB = 1 << 20


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    """With one record in each of the two partitions of topic `t`."""
    async with running_gateway(load_settings(IN_MEMORY, {})) as running:
        await ask(running, ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([CreatableTopic("t", 2, 1)], 5000))
        batch = build_batch([Record(value=b"v")])
        parts = [PartitionProduceData(0, batch), PartitionProduceData(1, batch)]
        topics = [TopicProduceData("t", partition_data=parts)]
        await ask(running, ApiKey.PRODUCE, 9, ProduceRequest(None, -1, 5000, topics))
        yield running


async def ask(gateway: RunningGateway, key: ApiKey, version: int, message: object) -> Any:
    def exchange() -> Any:
        with Client(Address("127.0.0.1", gateway.bound[0].port), timeout=60.0) as client:
            return client.ask(key, version, message)

    return await asyncio.to_thread(exchange)


async def fetched(gateway: RunningGateway, *sizes: int, **fields: Any) -> list[str | int]:
    """The error, or the number of bytes, of each partition, requested with these maximum bytes."""
    parts = [FetchPartition(index, partition_max_bytes=size) for index, size in enumerate(sizes)]
    request = FetchRequest(topics=[FetchTopic("t", partitions=parts)], **fields)
    response = await ask(gateway, ApiKey.FETCH, VERSION, request)
    (topic,) = response.responses
    return [ErrorCode(p.error_code).name if p.error_code else len(p.records) for p in topic.partitions]


async def test_a_fetch_of_a_follower_gets_not_leader_or_follower(gateway: RunningGateway) -> None:
    assert await fetched(gateway, MIB, replica_id=5) == ["NOT_LEADER_OR_FOLLOWER"]
    assert isinstance((await fetched(gateway, MIB, replica_id=-2))[0], int)


async def test_an_unknown_isolation_level_is_a_server_error(gateway: RunningGateway) -> None:
    assert await fetched(gateway, MIB, isolation_level=2) == ["UNKNOWN_SERVER_ERROR"]
    topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]
    response = await ask(gateway, ApiKey.LIST_OFFSETS, 4, ListOffsetsRequest(-1, 2, topics))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_negative_size_fails_its_partition_and_a_negative_budget_the_first(
    gateway: RunningGateway,
) -> None:
    whole = (await fetched(gateway, MIB, MIB))[1]
    assert await fetched(gateway, MIB, -1) == [whole, "UNKNOWN_SERVER_ERROR"]
    assert await fetched(gateway, MIB, MIB, max_bytes=-1) == ["UNKNOWN_SERVER_ERROR", whole]
