"""A gateway that has lost its shard says nothing for good about groups, over a store of its own alone too."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from adapters.metadata.memory import MemoryMetadata
from gateway.assembly import HOST
from gateway.groups.messages import Sync
from gateway.groups.offset_manager import Committer
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.list_groups import ListGroupsRequest
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ledger.errors import ErrorName, StoreUnavailable
from ledger.groups.requests import StoreGroup
from ledger.groups.state import Group, OffsetRow
from ledger.types import TopicId
from tests.support.groups import join_of
from tests.support.in_memory import InMemoryGateway, in_memory_gateway
from tests.support.shards import open_shard

WAIT_S = 5.0
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


class Losing:
    """`member_id` is the only member of group g, in its first generation. This process alone writes the
    store, as its journal says."""

    def __init__(self, gateway: InMemoryGateway, store: MemoryMetadata) -> None:
        self.gateway = gateway
        self.shard = gateway.running.shard
        self.groups = gateway.running.services.groups
        self.member_id = ""
        self.topic_id = TopicId(b"")
        self._store = store

    async def prepare(self) -> None:
        assert self.shard.is_exclusive
        self.topic_id = TopicId(await self.gateway.create("t"))
        joined = await self.groups.join("g", replace(join_of(), needs_member_id=False), deadline())
        self.member_id = joined.member_id
        sync = Sync(self.member_id, None, 1, None, None, {self.member_id: b"all"})
        assert (await self.groups.sync("g", sync, deadline())).error == "NONE"
        assert await self.commit() is ErrorCode.NONE

    async def lose(self) -> None:
        """An entry that another has written nevertheless: the owner may not go on. A disk that fails an
        append has the same effect."""
        other = await open_shard(self._store, None, None, 2, lambda: 1_000)
        await other.close()
        with pytest.raises(StoreUnavailable):
            await self.shard.ask(StoreGroup(Group("h", "consumer", 1, None, None, (), False)), deadline())
        async with asyncio.timeout(WAIT_S):
            await self.gateway.running.owner_scope.ended.wait()

    async def commit(self) -> ErrorCode:
        topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])
        request = OffsetCommitRequest("g", 1, self.member_id, topics=[topic])
        (found,) = (await self.gateway.ask(ApiKey.OFFSET_COMMIT, 7, request)).topics
        return ErrorCode(found.partitions[0].error_code)

    async def describe(self) -> tuple[ErrorCode, str, int]:
        request = DescribeGroupsRequest(["g"])
        (found,) = (await self.gateway.ask(ApiKey.DESCRIBE_GROUPS, 5, request)).groups
        return ErrorCode(found.error_code), found.group_state, len(found.members)


@pytest.fixture
async def losing() -> AsyncIterator[Losing]:
    store = MemoryMetadata(exclusive=True)
    world = replace(HOST, stores=replace(HOST.stores, metadata=lambda url, **_: store))
    async with in_memory_gateway({"groups.group.initial.rebalance.delay.ms": "0"}, world) as gateway:
        made = Losing(gateway, store)
        await made.prepare()
        yield made


async def test_a_member_is_not_unknown_because_its_shard_is_lost(losing: Losing) -> None:
    await losing.lose()
    assert await losing.commit() is UNAVAILABLE


async def test_no_group_is_empty_because_its_shard_is_lost(losing: Losing) -> None:
    assert await losing.describe() == (ErrorCode.NONE, "Stable", 1)
    await losing.lose()
    assert await losing.describe() == (UNAVAILABLE, "", 0)
    listed = await losing.gateway.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    assert (listed.error_code, listed.groups) == (UNAVAILABLE, [])


async def test_nor_if_it_is_lost_after_the_barrier_was_passed(
    losing: Losing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def passed(_: float) -> None: ...

    monkeypatch.setattr(losing.gateway.running.services.topics, "barrier", passed)
    await losing.lose()
    assert await losing.describe() == (UNAVAILABLE, "", 0)
    listed = await losing.gateway.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    assert (listed.error_code, listed.groups) == (UNAVAILABLE, [])


async def test_offsets_are_not_read_from_what_a_gateway_knew_before_its_shard_was_lost(
    losing: Losing,
) -> None:
    await losing.lose()
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    fetched = await losing.gateway.ask(ApiKey.OFFSET_FETCH, 7, request)
    assert fetched.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_barrier_of_a_shard_that_is_lost_fails(losing: Losing) -> None:
    await losing.shard.barrier(deadline())
    await losing.lose()
    with pytest.raises(StoreUnavailable, match="does not own the shard"):
        await losing.shard.barrier(deadline())


@pytest.mark.parametrize("generation", [1, -1])
async def test_members_that_no_runner_knows_yet_are_neither_refused_for_good_nor_overlooked(
    losing: Losing, generation: int
) -> None:
    """As between a takeover and the start of the coordinator, when the shard takes requests already."""
    await losing.groups.end_epoch()
    assert not losing.shard.why_not
    member_id = losing.member_id if generation > 0 else ""
    committer = Committer("g", member_id, None, generation)
    row = OffsetRow(losing.topic_id, 0, 2)
    errors = await losing.gateway.running.services.group_offsets.commit(committer, [row], deadline())
    assert errors == [ErrorName.COORDINATOR_NOT_AVAILABLE]
