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
AT_ONCE: Final = 500
UNITS_A_MEMBER: Final = 5


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    has_members = context.header.api_version >= FIRST_WITH_MEMBERS
    asked = request.members if has_members else [MemberIdentity(request.member_id)]
    leavers = [
        Leaver(member.member_id, member.group_instance_id, member.reason or "")
        async for member in context.slices.paced(asked)
    ]
    errors = list[str]()
    for start in range(0, max(len(leavers), 1), AT_ONCE):
        part = leavers[start : start + AT_ONCE]
        if context.slices.is_due(UNITS_A_MEMBER * len(part)):
            await context.slices.turn()
        left = await context.services.groups.leave(request.group_id, part, context.journal_deadline())
        if isinstance(left, str):
            return LeaveGroupResponse(error_code=ErrorCode[left])
        errors += left
    if not has_members:
        return LeaveGroupResponse(error_code=ErrorCode[errors[0]])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member.member_id, member.group_instance_id, ErrorCode[error])
            async for member, error in context.slices.paced(zip(asked, errors, strict=True))
        ]
    )
