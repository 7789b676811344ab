"""Heartbeat (key 12), versions 0 to 4."""

from functools import partial

from gateway.context import Cancellable, MessageReply, RequestContext
from gateway.handlers.waiting import Waiting
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest, HeartbeatResponse


def start(context: RequestContext, request: HeartbeatRequest, reply: MessageReply) -> Cancellable | None:
    """Answered at once, unless the group is being stored or somebody may be denied."""
    error = context.services.groups.heartbeat_at_once(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    if error is None:
        return Waiting(context, partial(wait, context, request), reply)
    reply.answer(HeartbeatResponse(error_code=ErrorCode[error]))
    return None


async def wait(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    error = await context.services.groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        context.journal_deadline(),
    )
    return HeartbeatResponse(error_code=ErrorCode[error])
