"""JoinGroup (11), v0-9.

Waits until the group's join phase ends.

v1: RebalanceTimeoutMs. v2: throttle time. v3: throttled after the response. v4: MEMBER_ID_REQUIRED, the
client joins again with its id (KIP-394). v5: GroupInstanceId (KIP-345). v6: flexible. v7: ProtocolType, and a
nullable ProtocolName, in the response (KIP-559). v8: Reason (KIP-800). v9: SkipAssignment (KIP-814).
"""

from typing import Final

from gateway.groups.messages import Join
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

FIRST_VERSION_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_VERSION_WITH_MEMBER_ID_REQUIRED: Final = 4
FIRST_VERSION_WITH_NO_PROTOCOL: Final = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT: Final = 9


async def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.header.api_version
    has_timeout = version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    protocols: dict[str, bytes] = {}
    async for protocol in context.slices.paced(request.protocols):
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    join = Join(
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
        needs_member_id=version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
        skips_assignment=version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
        reason=request.reason or "",
    )
    # From here on the request waits for other members, perhaps for minutes.
    context.leave()
    result = await context.services.groups.join(request.group_id, join, context.journal_deadline())
    protocol_name = result.protocol
    if protocol_name is None and version < FIRST_VERSION_WITH_NO_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=ERROR_CODES[result.error],
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata)
            for member in result.members
        ],
    )
