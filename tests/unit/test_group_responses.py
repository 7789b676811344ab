"""Responses about groups have bounds, however often a request names a group or partition."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gateway.handlers.leave_group import AT_ONCE
from gateway.requests.response_size import ResponseSize, ResponseTooLarge
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest, MemberIdentity
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
    response = await gateway.ask(ApiKey.OFFSET_COMMIT, 8, request)
    assert response.topics[0].partitions[0].error_code == 0


def test_a_response_grows_until_it_is_too_large() -> None:
    size = ResponseSize(500)
    size.take(items=1, encoded_bytes=100)
    with pytest.raises(ResponseTooLarge):
        size.take(encoded_bytes=201)
    size.take(encoded_bytes=200)


@pytest.mark.parametrize("topics", [None, [OffsetFetchRequestTopics("t", partition_indexes=[0])]])
async def test_a_group_named_again_and_again_is_returned_up_to_a_bound(
    gateway: InMemoryGateway, topics: list[OffsetFetchRequestTopics] | None
) -> None:
    await commit(gateway)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)] * 50)
    groups = (await gateway.ask(ApiKey.OFFSET_FETCH, 8, request)).groups
    errors = [ErrorCode(group.error_code).name for group in groups]
    returned = errors.index("INVALID_REQUEST")
    assert returned == (7 if topics is None else 8)
    assert all(group.topics[0].partitions[0].metadata == TEXT for group in groups[:returned])
    assert set(errors[returned:]) == {"INVALID_REQUEST"} and not any(g.topics for g in groups[returned:])


async def test_a_partition_named_again_and_again_is_returned_up_to_a_bound(
    gateway: InMemoryGateway,
) -> None:
    await commit(gateway)
    request = OffsetFetchRequest("g", topics=[OffsetFetchRequestTopic("t", [0] * 50)])
    response = await gateway.ask(ApiKey.OFFSET_FETCH, 7, request)
    assert ErrorCode(response.error_code).name == "INVALID_REQUEST"
    assert {part.metadata for topic in response.topics for part in topic.partitions} <= {""}


async def test_a_group_is_described_up_to_a_bound(gateway: InMemoryGateway) -> None:
    await join(gateway, "c")
    described = (await gateway.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(["g"] * 300))).groups
    errors = [ErrorCode(group.error_code).name for group in described]
    assert errors[0] == "NONE" and errors[-1] == "INVALID_REQUEST"
    assert len(described[0].members) == 1 and not described[-1].members


async def test_the_longest_instance_id_gives_a_member_id_that_can_be_encoded(
    gateway: InMemoryGateway,
) -> None:
    instance = "i" * LONGEST
    response = await join(gateway, instance)
    assert response.error_code == 0 and response.members[0].group_instance_id == instance
    assert len(response.member_id) < LONGEST


async def join(gateway: InMemoryGateway, instance: str) -> JoinGroupResponse:
    request = JoinGroupRequest(
        "g", 10_000, 10_000, "", instance, "consumer", [JoinGroupRequestProtocol("range", b"x")]
    )
    response: JoinGroupResponse = await gateway.ask(ApiKey.JOIN_GROUP, 5, request)
    return response


async def test_of_many_members_that_leave_each_has_a_result_also_if_later_ones_cannot_leave(
    gateway: InMemoryGateway,
) -> None:
    request = JoinGroupRequest(
        "g", 30_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("p", b"")]
    )
    joined = await gateway.ask(ApiKey.JOIN_GROUP, 3, request)
    groups = gateway.running.services.groups
    leave = groups.leave

    async def closes_afterwards(*arguments: Any) -> Any:
        left = await leave(*arguments)
        groups.close()
        return left

    groups.leave = closes_afterwards  # type: ignore[method-assign, assignment]
    members = [MemberIdentity(joined.member_id), *(MemberIdentity(f"m{n}") for n in range(AT_ONCE))]
    response = await gateway.ask(ApiKey.LEAVE_GROUP, 3, LeaveGroupRequest("g", members=members))
    assert response.error_code == ErrorCode.NONE
    errors = [ErrorCode(member.error_code).name for member in response.members]
    assert errors == ["NONE", *["UNKNOWN_MEMBER_ID"] * (AT_ONCE - 1), "COORDINATOR_NOT_AVAILABLE"]
    assert [member.member_id for member in response.members] == [member.member_id for member in members]
    # If none has left there is one error for all, as in Kafka.
    refused = await gateway.ask(ApiKey.LEAVE_GROUP, 3, LeaveGroupRequest("g", members=members))
    assert (ErrorCode(refused.error_code).name, refused.members) == ("COORDINATOR_NOT_AVAILABLE", [])
