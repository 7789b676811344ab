"""DescribeGroups (15), v0-6.

v1: throttle time. v2: throttled after the response. v3: authorized operations (KIP-430). v4: GroupInstanceId
(KIP-345). v5: flexible. v6: GROUP_ID_NOT_FOUND for a missing group (KIP-1043).
"""

from typing import Final

from gateway.groups.describe import DEAD, GroupDescription
from gateway.requests.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from gateway.requests.context import RequestContext
from gateway.requests.response_size import ResponseSize, ResponseTooLarge
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 6
FIRST_VERSION_WITH_INSTANCE_IDS: Final = 4


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    refused = await context.services.topics.barrier(context.journal_deadline())
    size, slices, groups = context.response_size(), context.slices, list[DescribedGroup]()
    if refused is None:
        async for name in slices.paced(request.groups):
            groups.append(await _describe(context, name, operations, size))
    if refused is not None or context.services.shard.why_not:
        # Also if the shard was lost meanwhile, and with it who is a member of what.
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        groups = [_refused(context, name, error) for name in request.groups]
    return DescribeGroupsResponse(groups=groups)


def _refused(context: RequestContext, group_id: str, error: ErrorCode) -> DescribedGroup:
    context.error = error.name
    return DescribedGroup(error, group_id=group_id)


async def _describe(
    context: RequestContext, group_id: str, operations: int, size: ResponseSize
) -> DescribedGroup:
    group = context.services.groups.describe(group_id)
    if group is None:
        return _missing(context, group_id, operations)
    try:
        members = await _members(context, group, size)
    except ResponseTooLarge:
        return _refused(context, group_id, ErrorCode.INVALID_REQUEST)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol or "",
        members=members,
        authorized_operations=operations,
    )


def _missing(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
    if context.header.api_version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, group_state=DEAD, authorized_operations=operations)
    error = ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(error, f"Group {group_id} not found.", group_id, DEAD)


async def _members(
    context: RequestContext, group: GroupDescription, size: ResponseSize
) -> list[DescribedGroupMember]:
    """As they were when the group was described, also if it changes between two slices."""
    slices, members = context.slices, list[DescribedGroupMember]()
    with_instances = context.header.api_version >= FIRST_VERSION_WITH_INSTANCE_IDS
    async for member in slices.paced(group.members):
        texts = (member.member_id, member.client_id, member.metadata, member.assignment)
        size.take(1, sum(map(len, texts)))
        members.append(
            DescribedGroupMember(
                member.member_id,
                member.instance_id if with_instances else None,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
        )
    return slices.keep(members)
