"""DescribeGroups, versions 0-6 (operations: KIP-430, a missing group is an error from 6 on: KIP-1043)."""

from typing import Final

from gateway.context import RequestContext
from gateway.groups.states import State
from gateway.groups.views import GroupView
from gateway.handlers.operations import GROUP_OPERATIONS, NOT_ASKED
from gateway.requests.response_size import ResponseSize, ResponseTooLarge
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

TELLS_MISSING_FROM: Final = 6
INSTANCES_FROM: Final = 4


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    refused = await context.services.topics.barrier(context.journal_deadline())
    if refused is not None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return DescribeGroupsResponse(groups=[_refused(context, name, error) for name in request.groups])
    size, slices, groups = context.response_size(), context.slices, list[DescribedGroup]()
    async for name in slices.paced(request.groups):
        groups.append(_describe(context, name, operations, size))
        slices.is_due(len(groups[-1].members))
    return DescribeGroupsResponse(groups=groups)


def _refused(context: RequestContext, group_id: str, error: ErrorCode) -> DescribedGroup:
    context.error = error.name
    return DescribedGroup(error, group_id=group_id)


def _describe(context: RequestContext, group_id: str, operations: int, size: ResponseSize) -> DescribedGroup:
    view = context.services.groups.view(group_id)
    if view is None:
        return _missing(context, group_id, operations)
    try:
        members = _members(view, context.header.api_version >= INSTANCES_FROM, size)
    except ResponseTooLarge:
        return _refused(context, group_id, ErrorCode.INVALID_REQUEST)
    return DescribedGroup(
        group_id=group_id,
        group_state=view.state,
        protocol_type=view.protocol_type,
        protocol_data=view.protocol or "",
        members=members,
        authorized_operations=operations,
    )


def _missing(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
    if context.header.api_version < TELLS_MISSING_FROM:
        return DescribedGroup(
            group_id=group_id, group_state=State.DEAD.value, authorized_operations=operations
        )
    error = ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(error, f"Group {group_id} not found.", group_id, State.DEAD.value)


def _members(view: GroupView, with_instances: bool, size: ResponseSize) -> list[DescribedGroupMember]:
    for member in view.members:
        texts = (member.member_id, member.client_id, member.metadata, member.assignment)
        size.take(1, sum(map(len, texts)))
    return [
        DescribedGroupMember(
            member.member_id,
            member.instance_id if with_instances else None,
            member.client_id,
            member.client_host,
            member.metadata,
            member.assignment,
        )
        for member in view.members
    ]
