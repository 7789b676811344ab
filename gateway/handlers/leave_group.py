"""LeaveGroup (13), v0-5.

v1: throttle time. v2: throttled after the response. v3: Members, several at once (KIP-345). v4: flexible. v5:
Reason (KIP-800).
"""

from typing import Final

from gateway.groups.messages import LeavingMember
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ledger.errors import ErrorName

FIRST_VERSION_WITH_MEMBERS: Final = 3
AT_ONCE: Final = 500
UNITS_A_MEMBER: Final = 5


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    has_members = context.header.api_version >= FIRST_VERSION_WITH_MEMBERS
    members = request.members if has_members else [MemberIdentity(request.member_id)]
    leaving = [
        LeavingMember(member.member_id, member.group_instance_id, member.reason or "")
        async for member in context.slices.paced(members)
    ]
    errors = list[ErrorName]()
    for start in range(0, max(len(leaving), 1), AT_ONCE):
        part = leaving[start : start + AT_ONCE]
        if context.slices.is_due(UNITS_A_MEMBER * len(part)):
            await context.slices.next_slice()
        left = await context.services.groups.leave(request.group_id, part, context.journal_deadline())
        if isinstance(left, str) and not errors:
            return LeaveGroupResponse(error_code=ERROR_CODES[left])
        if isinstance(left, str):
            # Members of earlier parts have left, so an error for all would be wrong.
            errors += [left] * (len(leaving) - len(errors))
            break
        errors += left
    if not has_members:
        return LeaveGroupResponse(error_code=ERROR_CODES[errors[0]])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member.member_id, member.group_instance_id, ERROR_CODES[error])
            async for member, error in context.slices.paced(zip(members, errors, strict=True))
        ]
    )
