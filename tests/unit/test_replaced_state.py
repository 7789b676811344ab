"""No component keeps the state of the ledger: each reads it again, so a replica may go on with another."""

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
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
from ledger.image import all_rows, restore
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records

LATEST = -1


async def topic_names(gateway: InMemoryGateway) -> list[str]:
    response = await gateway.ask(ApiKey.METADATA, 12, MetadataRequest(None))
    return [topic.name for topic in response.topics]


async def latest(gateway: InMemoryGateway, topic: str) -> int:
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, LATEST)])])
    (found,) = (await gateway.ask(ApiKey.LIST_OFFSETS, 7, request)).topics
    return int(found.partitions[0].offset)


async def commit(gateway: InMemoryGateway, topic: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata="")
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic(topic, partitions=[partition])])
    (found,) = (await gateway.ask(ApiKey.OFFSET_COMMIT, 7, request)).topics
    return int(found.partitions[0].error_code)


async def fetched_bytes(gateway: InMemoryGateway, topic: str) -> int:
    named = FetchTopic(topic, partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])
    request = FetchRequest(max_bytes=1 << 20, topics=[named])
    (found,) = (await gateway.ask(ApiKey.FETCH, 11, request)).responses
    return len(found.partitions[0].records)


def replace_state(gateway: InMemoryGateway) -> None:
    """By an equal one. Whatever still reads the one before fails."""
    replica = gateway.running.shard.replica
    before = replica.state
    replica.state = restore(list(all_rows(before)))
    parts = [getattr(before, name) for name in ("topics", "objects", "groups", "quotas", "resource_configs")]
    for part in [*parts, before]:
        for name in [*getattr(part, "__slots__", ()), *getattr(part, "__dict__", ())]:
            delattr(part, name)


async def test_clients_notice_nothing_of_a_state_that_is_replaced() -> None:
    async with in_memory_gateway({"cache.run_bytes": "0"}) as gateway:
        await gateway.create("a")
        assert await gateway.send("a", records(3)) == 0
        assert await topic_names(gateway) == ["a"]
        assert await commit(gateway, "a", 2) == 0
        size = await fetched_bytes(gateway, "a")
        replace_state(gateway)
        assert await fetched_bytes(gateway, "a") == size > 0
        assert await gateway.send("a", records(2)) == 3
        assert await latest(gateway, "a") == 5
        assert await commit(gateway, "a", 4) == 0
        await gateway.create("b", retention_ms="1000")
        assert await topic_names(gateway) == ["a", "b"]
        assert await gateway.configs("b") == {"retention.ms": "1000"}
        (group_id,) = gateway.running.services.groups.ids()
        assert group_id == "g"
        assert "dragoman_topics" in gateway.running.services.metrics.render().decode()
