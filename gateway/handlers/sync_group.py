"""SyncGroup (14), v0-5.

Waits for the leader's assignment.

v1: throttle time. v2: throttled after the response. v3: GroupInstanceId (KIP-345). v4: flexible. v5:
ProtocolType and ProtocolName (KIP-559).
"""

from typing import Final

from gateway.groups.messages import Sync
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL: Final = 5


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.header.api_version >= FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    sync = Sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {
            share.member_id: bytes(share.assignment)
            async for share in context.slices.paced(request.assignments)
        },
    )
    # From here on the request waits for the leader.
    context.leave()
    result = await context.services.groups.sync(request.group_id, sync, context.journal_deadline())
    return SyncGroupResponse(
        error_code=ERROR_CODES[result.error],
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
