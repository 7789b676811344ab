"""DescribeGroups, versions 0-6 (operations: KIP-430, a missing group is an error from 6 on: KIP-1043)."""

from typing import Final

from gateway.context import RequestContext
from gateway.groups.states import State
from gateway.groups.views import GroupView
from gateway.handlers.answer_room import AnswerRoom, AnswerTooLarge
from gateway.handlers.operations import GROUP_OPERATIONS, NOT_ASKED
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
    room = AnswerRoom()
    return DescribeGroupsResponse(
        groups=[_describe(context, name, operations, room) for name in request.groups]
    )


def _refused(context: RequestContext, group_id: str, error: ErrorCode) -> DescribedGroup:
    context.error = error.name
    return DescribedGroup(error, group_id=group_id)


def _describe(context: RequestContext, group_id: str, operations: int, room: AnswerRoom) -> DescribedGroup:
    view = context.services.groups.view(group_id)
    if view is None:
        return _missing(context, group_id, operations)
    try:
        members = _members(view, context.header.api_version >= INSTANCES_FROM, room)
    except AnswerTooLarge:
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


def _members(view: GroupView, with_instances: bool, room: AnswerRoom) -> list[DescribedGroupMember]:
    for member in view.members:
        room.take(member.member_id, member.client_id, member.metadata, member.assignment)
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
