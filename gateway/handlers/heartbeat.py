"""Heartbeat (key 12), versions 0 to 4."""

from gateway.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    error = await context.services.groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        context.journal_deadline(),
    )
    return HeartbeatResponse(error_code=ErrorCode[error])
