"""Answers about groups have bounds, however often a request names what is there."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.requests.response_size import ResponseSize, ResponseTooLarge
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.support.in_memory import InMemoryGateway, in_memory_gateway

TEXT = "m" * 1000
LONGEST = 32_767


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    settings = {"groups.group.initial.rebalance.delay.ms": "0", "limits.response_bytes": "10000"}
    async with in_memory_gateway(settings) as running:
        yield running


async def commit(gateway: InMemoryGateway) -> None:
    await gateway.create("t")
    row = OffsetCommitRequestPartition(0, 7, -1, TEXT)
    request = OffsetCommitRequest("g", -1, "", None, -1, [OffsetCommitRequestTopic("t", partitions=[row])])
    answer = await gateway.ask(ApiKey.OFFSET_COMMIT, 8, request)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_response_takes_until_it_is_too_large() -> None:
    size = ResponseSize(500)
    size.take(items=1, encoded_bytes=100)
    with pytest.raises(ResponseTooLarge):
        size.take(encoded_bytes=201)
    size.take(encoded_bytes=200)


@pytest.mark.parametrize("topics", [None, [OffsetFetchRequestTopics("t", partition_indexes=[0])]])
async def test_a_group_named_again_and_again_is_not_answered_without_end(
    gateway: InMemoryGateway, topics: list[OffsetFetchRequestTopics] | None
) -> None:
    await commit(gateway)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)] * 50)
    groups = (await gateway.ask(ApiKey.OFFSET_FETCH, 8, request)).groups
    errors = [ErrorCode(group.error_code).name for group in groups]
    answered = errors.index("INVALID_REQUEST")
    assert answered == (7 if topics is None else 8)
    assert all(group.topics[0].partitions[0].metadata == TEXT for group in groups[:answered])
    assert set(errors[answered:]) == {"INVALID_REQUEST"} and not any(g.topics for g in groups[answered:])


async def test_a_partition_named_again_and_again_is_not_answered_without_end(
    gateway: InMemoryGateway,
) -> None:
    await commit(gateway)
    request = OffsetFetchRequest("g", topics=[OffsetFetchRequestTopic("t", [0] * 50)])
    answer = await gateway.ask(ApiKey.OFFSET_FETCH, 7, request)
    assert ErrorCode(answer.error_code).name == "INVALID_REQUEST"
    assert {part.metadata for topic in answer.topics for part in topic.partitions} <= {""}


async def test_a_group_is_not_described_without_end(gateway: InMemoryGateway) -> None:
    await join(gateway, "c")
    described = (await gateway.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(["g"] * 300))).groups
    errors = [ErrorCode(group.error_code).name for group in described]
    assert errors[0] == "NONE" and errors[-1] == "INVALID_REQUEST"
    assert len(described[0].members) == 1 and not described[-1].members


async def test_the_longest_instance_id_makes_a_member_id_that_can_be_told(gateway: InMemoryGateway) -> None:
    instance = "i" * LONGEST
    answer = await join(gateway, instance)
    assert answer.error_code == 0 and answer.members[0].group_instance_id == instance
    assert len(answer.member_id) < LONGEST


async def join(gateway: InMemoryGateway, instance: str) -> JoinGroupResponse:
    request = JoinGroupRequest(
        "g", 10_000, 10_000, "", instance, "consumer", [JoinGroupRequestProtocol("range", b"x")]
    )
    return await gateway.ask(ApiKey.JOIN_GROUP, 5, request)
