"""A whole gateway in this process over stores in memory, for one request message at a time.

async with in_memory_gateway() as gateway:
    response = await gateway.ask(ApiKey.METADATA, 13, MetadataRequest())
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gateway.addresses import Address
from gateway.assembly import HOST, RunningGateway, running_gateway
from gateway.cli.client import Client
from gateway.config import load_settings
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.world import World
from ledger.batch.records import Producer, Record, build_batch

SETTINGS = {
    "listeners.listen": "PLAINTEXT://127.0.0.1:0",
    "admin.listen": "",
    "storage.metadata": "memory:",
    "storage.data": "memory:",
    "storage.allow_unsafe_acks": "true",
    "limits.topic_partitions": "100",
    "limits.partitions": "150",
}
TOPIC = 2
ANONYMOUS_PRODUCER = Producer(-1, -1, -1)


class InMemoryGateway:
    """Its interface for tests. Every wait ends after 5 s."""

    def __init__(self, running: RunningGateway) -> None:
        self.running = running

    async def ask(self, key: ApiKey, version: int, message: object) -> Any:
        def exchange() -> Any:
            with Client(Address("127.0.0.1", self.running.bound[0].port), timeout=5.0) as client:
                return client.ask(key, version, message)

        return await asyncio.to_thread(exchange)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """A topic (in config names `_` means the dot); its id. Errors: AssertionError."""
        given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=given)], 5000)
        (created,) = (await self.ask(ApiKey.CREATE_TOPICS, 7, request)).topics
        assert created.error_code == 0, created
        return bytes(created.topic_id)

    async def send(
        self,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        producer: Producer = ANONYMOUS_PRODUCER,
    ) -> int:
        """One batch; its base offset. Errors: AssertionError."""
        batch = build_batch(records, base_timestamp=1_700_000_000_000, producer=producer)
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, bytes(batch))])
        response = await self.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, -1, 5000, [data]))
        (result,) = response.responses[0].partition_responses
        assert result.error_code == 0, ErrorCode(result.error_code)
        return int(result.base_offset)

    async def configs(self, topic: str) -> dict[str, str]:
        """What is set on a topic, without defaults."""
        request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, None)])
        (result,) = (await self.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
        assert result.error_code == 0
        return {config.name: config.value for config in result.configs if config.config_source == 1}


def records(count: int) -> list[Record]:
    return [Record(i, i, b"key", b"value", ()) for i in range(count)]


def names_of(codes: Sequence[int]) -> list[str]:
    return [ErrorCode(code).name for code in codes]


@asynccontextmanager
async def in_memory_gateway(
    more: Mapping[str, str] | None = None, world: World = HOST
) -> AsyncIterator[InMemoryGateway]:
    settings = load_settings({**SETTINGS, **(more or {})}, {})
    async with running_gateway(settings, world) as running:
        yield InMemoryGateway(running)
