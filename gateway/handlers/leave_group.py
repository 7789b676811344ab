"""LeaveGroup (key 13), versions 0 to 5: several members at once from 3 on (KIP-345)."""

from typing import Final

from gateway.context import RequestContext
from gateway.groups.values import Leaver
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

FIRST_WITH_MEMBERS: Final = 3


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    has_members = context.header.api_version >= FIRST_WITH_MEMBERS
    asked = request.members if has_members else [MemberIdentity(request.member_id)]
    leavers = [Leaver(member.member_id, member.group_instance_id, member.reason or "") for member in asked]
    errors = await context.services.groups.leave(request.group_id, leavers, context.journal_deadline())
    if isinstance(errors, str):
        return LeaveGroupResponse(error_code=ErrorCode[errors])
    if not has_members:
        return LeaveGroupResponse(error_code=ErrorCode[errors[0]])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member.member_id, member.group_instance_id, ErrorCode[error])
            for member, error in zip(asked, errors, strict=True)
        ]
    )
