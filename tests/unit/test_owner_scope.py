"""What only an owner does begins and ends with its epoch; the rest of a gateway outlives the loss."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from gateway.assembly import HOST
from gateway.coordination.owner_scope import OwnerScope
from gateway.coordination.shard import Shard
from gateway.coordination.takeover import take_over
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.metadata import MetadataRequest
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import build_batch
from ledger.errors import StoreUnavailable
from ledger.image import all_rows
from ledger.rows import digest
from ledger.topics.requests import Created, CreateTopic
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records
from tests.support.journalled import topic_id
from tests.support.shards import journal_of, open_shard

WAIT_S = 5.0


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


class Part:
    def __init__(self, name: str, events: list[str], fails: bool = False) -> None:
        self.name = name
        self.events = events
        self.fails = fails

    async def begin_epoch(self) -> None:
        self.events.append(f"+{self.name}")
        if self.fails:
            raise StoreUnavailable("away")

    async def end_epoch(self) -> None:
        self.events.append(f"-{self.name}")
        if self.fails:
            raise ZeroDivisionError


@pytest.fixture
async def shard() -> AsyncIterator[Shard]:
    opened = await open_shard(MemoryMetadata(), None, None, 1, lambda: 1_000)
    yield opened
    await opened.close()


def scope_of(shard: Shard, *parts: Part) -> OwnerScope:
    scope = OwnerScope(shard)
    for part in parts:
        scope.add(part)
    return scope


async def test_parts_begin_in_order_and_end_in_reverse_when_the_shard_is_lost(shard: Shard) -> None:
    events: list[str] = []
    scope = scope_of(shard, Part("a", events), Part("b", events))
    assert scope.ended.is_set()
    await scope.begin()
    assert events == ["+a", "+b"] and not scope.ended.is_set()
    shard.lost.set()
    async with asyncio.timeout(WAIT_S):
        await scope.ended.wait()
    assert events == ["+a", "+b", "-b", "-a"]


async def test_a_part_that_joins_begins_at_once_and_ends_first(shard: Shard) -> None:
    events: list[str] = []
    scope = scope_of(shard, Part("a", events))
    await scope.begin()
    await scope.join(Part("b", events))
    assert events == ["+a", "+b"]
    await scope.end()
    assert events == ["+a", "+b", "-b", "-a"]
    await scope.join(Part("c", events))
    assert events[4:] == []


async def test_a_part_that_fails_to_end_does_not_keep_the_others_from_it(shard: Shard) -> None:
    events: list[str] = []
    scope = scope_of(shard, Part("a", events), Part("b", events, fails=True))
    with pytest.raises(StoreUnavailable):
        await scope.begin()
    await scope.end()
    assert events == ["+a", "+b", "-b", "-a"] and scope.ended.is_set()


class Losing:
    """A gateway that loses its shard to another owner over the same store."""

    def __init__(self, gateway: InMemoryGateway, store: MemoryMetadata) -> None:
        self.gateway = gateway
        self.shard = gateway.running.shard
        self.scope = gateway.running.owner_scope
        self._store = store
        self.blobs = MemoryBlobs()

    async def lose(self, *topics: str) -> Shard:
        """To one that creates these topics."""
        other = await open_shard(self._store, self.blobs, None, 2, lambda: 1_000)
        for number, name in enumerate(topics, 50):
            created = await other.ask(CreateTopic(name, topic_id(number), 1, {}), deadline())
            assert isinstance(created, Created)
        with pytest.raises(StoreUnavailable):
            await self.shard.barrier(deadline())
        async with asyncio.timeout(WAIT_S):
            await self.scope.ended.wait()
        return other

    async def take_back(self) -> None:
        await take_over(self.shard, self.blobs, 1, deadline(), is_lasting=False)
        await self.scope.begin()

    async def topics(self) -> list[str]:
        response = await self.gateway.ask(ApiKey.METADATA, 12, MetadataRequest(None))
        return [topic.name for topic in response.topics]

    async def produce(self) -> ErrorCode:
        batch = bytes(build_batch(records(1), base_timestamp=1))
        data = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])
        response = await self.gateway.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, -1, 4000, [data]))
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def join(self, member_id: str = "") -> tuple[ErrorCode, str]:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest(
            "g", 10_000, 10_000, member_id, protocol_type="consumer", protocols=protocols
        )
        response = await self.gateway.ask(ApiKey.JOIN_GROUP, 3, request)
        return ErrorCode(response.error_code), response.member_id


@pytest.fixture
async def losing() -> AsyncIterator[Losing]:
    store = MemoryMetadata(exclusive=False)
    world = replace(HOST, stores=replace(HOST.stores, metadata=lambda url, **_: store))
    async with in_memory_gateway({"groups.group.initial.rebalance.delay.ms": "0"}, world) as gateway:
        await gateway.create("t")
        yield Losing(gateway, store)


async def test_a_gateway_that_lost_its_shard_reads_on_and_refuses_what_an_owner_does(losing: Losing) -> None:
    assert (await losing.join())[0] is ErrorCode.NONE
    other = await losing.lose()
    assert losing.gateway.running.ended.is_set()
    assert await losing.topics() == ["t"]
    assert await losing.produce() is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await losing.join())[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert losing.gateway.running.services.groups.members_of("g") == 0
    await other.close()


async def test_a_gateway_that_was_replaced_refuses_no_topic_by_what_it_knew(
    losing: Losing,
) -> None:
    """It does not know yet that it was replaced."""
    other = await open_shard(journal_of(losing.shard).store, None, None, 2, lambda: 1_000)
    exists = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 4_000)
    (refused,) = (await losing.gateway.ask(ApiKey.CREATE_TOPICS, 5, exists)).topics
    assert ErrorCode(refused.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
    await other.close()


async def test_a_gateway_that_was_replaced_refuses_no_growth_by_what_it_knew(losing: Losing) -> None:
    other = await open_shard(journal_of(losing.shard).store, None, None, 2, lambda: 1_000)
    too_few = CreatePartitionsRequest([CreatePartitionsTopic("t", 1)], 4_000)
    (refused,) = (await losing.gateway.ask(ApiKey.CREATE_PARTITIONS, 1, too_few)).results
    assert ErrorCode(refused.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
    await other.close()


async def test_a_coordinator_that_was_replaced_refuses_no_member_by_what_it_knew(losing: Losing) -> None:
    assert (await losing.join())[0] is ErrorCode.NONE
    other = await open_shard(journal_of(losing.shard).store, None, None, 2, lambda: 1_000)
    request = JoinGroupRequest(
        "g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("sticky", b"")]
    )
    refused = await losing.gateway.ask(ApiKey.JOIN_GROUP, 3, request)
    assert ErrorCode(refused.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await other.close()


async def test_a_gateway_that_takes_its_shard_over_again_knows_what_was_written_meanwhile(
    losing: Losing,
) -> None:
    error, member_id = await losing.join()
    assert error is ErrorCode.NONE
    with pytest.raises(StoreUnavailable, match="owns the shard already"):
        await take_over(losing.shard, losing.blobs, 1, deadline(), is_lasting=False)
    for number, name in enumerate(["meanwhile", "later"]):
        other = await losing.lose(name)
        await losing.take_back()
        assert losing.shard.state.epoch == 3 + 2 * number
        assert name in await losing.topics()
        assert await losing.produce() is ErrorCode.NONE
        assert await losing.join(member_id) == (ErrorCode.NONE, member_id)
        with pytest.raises(StoreUnavailable):
            await other.barrier(deadline())
        await other.close()
    last = await open_shard(journal_of(losing.shard).store, None, None, 2, lambda: 1_000)
    await losing.shard.replica.follow(losing.shard.journal)
    assert digest(all_rows(last.state)) == digest(all_rows(losing.shard.state))
    await last.close()


async def test_a_gateway_that_takes_its_shard_over_again_goes_on_with_a_snapshot_where_entries_are_pruned(
    losing: Losing,
) -> None:
    error, member_id = await losing.join()
    assert error is ErrorCode.NONE and await losing.topics() == ["t"]
    other = await losing.lose("meanwhile", "later")
    checkpointer = Checkpointer(other, None, losing.blobs, SnapshotRule(1), lambda: 1_000)
    for number in range(3):
        await other.ask(CreateTopic(f"t{number}", topic_id(number), 1, {}), deadline())
        await checkpointer.snapshot()
    await checkpointer.prune()
    assert await other.journal.start() > losing.shard.state.applied
    await losing.take_back()
    assert await losing.topics() == ["later", "meanwhile", "t", "t0", "t1", "t2"]
    assert await losing.produce() is ErrorCode.NONE
    assert await losing.join(member_id) == (ErrorCode.NONE, member_id)
    await other.close()
