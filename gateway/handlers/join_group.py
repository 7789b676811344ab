"""JoinGroup (key 11), versions 0 to 9: the answer comes when the group's join phase ends."""

from typing import Final

from gateway.context import RequestContext
from gateway.groups.values import Join
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_MEMBER_ID_REQUIRED: Final = 4
FIRST_WITH_NO_PROTOCOL: Final = 7
FIRST_WITH_SKIP_ASSIGNMENT: Final = 9


async def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.header.api_version
    has_timeout = version >= FIRST_WITH_REBALANCE_TIMEOUT
    protocols: dict[str, bytes] = {}
    async for protocol in context.slices.paced(request.protocols):
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    asked = Join(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        new_member_id="",
        client_id=context.header.client_id or "",
        client_host=f"/{context.peer_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms, 0
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(protocols.items()),
        needs_member_id=version >= FIRST_WITH_MEMBER_ID_REQUIRED,
        skips_assignment=version >= FIRST_WITH_SKIP_ASSIGNMENT,
        reason=request.reason or "",
    )
    # What it waits for now is other members, perhaps for minutes.
    context.leave()
    answer = await context.services.groups.join(request.group_id, asked, context.journal_deadline())
    protocol_name = answer.protocol
    if protocol_name is None and version < FIRST_WITH_NO_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=ErrorCode[answer.error],
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata)
            for member in answer.members
        ],
    )
