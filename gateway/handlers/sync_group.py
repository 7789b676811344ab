"""SyncGroup (key 14), versions 0 to 5: the answer comes when the leader has sent the assignment."""

from typing import Final

from gateway.context import RequestContext
from gateway.groups.values import Sync
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_WITH_PROTOCOL: Final = 5


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.header.api_version >= FIRST_WITH_PROTOCOL and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    asked = Sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {
            given.member_id: bytes(given.assignment)
            async for given in context.slices.paced(request.assignments)
        },
    )
    # What it waits for now is the leader.
    context.leave()
    answer = await context.services.groups.sync(request.group_id, asked, context.journal_deadline())
    return SyncGroupResponse(
        error_code=ErrorCode[answer.error],
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
