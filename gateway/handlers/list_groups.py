"""ListGroups, versions 0-5 (states: KIP-518, types: KIP-848): every group of this cluster."""

from gateway.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """A filter that is empty lets all through; letter case does not matter, nor, for states, spaces."""
    refused = await context.services.topics.barrier(context.journal_deadline())
    if refused is not None:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.state, group.group_type)
            async for group in context.slices.paced(context.services.groups.views())
            if (not states or group.state.lower() in states) and (not types or group.group_type in types)
        ]
    )
