"""ListGroups (16), v0-5.

v1: throttle time. v2: throttled after the response. v3: flexible. v4: StatesFilter and GroupState (KIP-518).
v5: TypesFilter and GroupType (KIP-848).
"""

from typing import Final

from gateway.requests.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

UNITS_A_GROUP: Final = 2


async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """An empty filter lets all groups pass. Filters ignore letter case, and for states also spaces."""
    refused = await context.services.topics.barrier(context.journal_deadline())
    if refused is not None:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    slices, groups, listed = context.slices, context.services.groups, list[ListedGroup]()
    async for group_id in slices.paced(groups.ids(), UNITS_A_GROUP):
        group = groups.listing(group_id)
        if group is None:
            continue  # it has gone since
        if (not states or group.state.lower() in states) and (not types or group.group_type in types):
            listed.append(ListedGroup(group_id, group.protocol_type, group.state, group.group_type))
    if context.services.shard.why_not:
        # Lost meanwhile, and with it who is a member of what.
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ListGroupsResponse(groups=slices.keep(listed))
