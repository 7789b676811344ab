"""Heartbeat (12), v0-4.

v1: throttle time. v2: throttled after the response. v3: GroupInstanceId (KIP-345). v4: flexible.
"""

from functools import partial

from gateway.completion import Cancellable, Completion
from gateway.requests.context import RequestContext
from gateway.requests.deferred import defer
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest, HeartbeatResponse


def start(
    context: RequestContext, request: HeartbeatRequest, completion: Completion[object]
) -> Cancellable | None:
    """Completed at once, unless the group is being stored or a fatal error has to be confirmed."""
    error = context.services.groups.try_heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    if error is None:
        return defer(context, partial(wait, context, request), completion)
    completion.set_result(HeartbeatResponse(error_code=ERROR_CODES[error]))
    return None


async def wait(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    error = await context.services.groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        context.journal_deadline(),
    )
    return HeartbeatResponse(error_code=ERROR_CODES[error])
