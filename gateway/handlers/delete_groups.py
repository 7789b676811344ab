"""DeleteGroups (42), v0-2.

KIP-229: removes groups without members, with their offsets.

v1: throttled after the response. v2: flexible.
"""

from gateway.requests.audit import audited
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ledger.requests import Refused


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """A group that is named twice is deleted once, and has one result."""
    groups, deadline = context.services.groups, context.journal_deadline()
    names = list(dict.fromkeys(request.groups_names))

    async def delete(name: str) -> DeletableGroupResult:
        refused = await audited(context, groups.delete(name, deadline), "group.deleted", group=name)
        return _result(context, name, refused)

    return DeleteGroupsResponse(results=await context.slices.gather(delete, names))


def _result(context: RequestContext, name: str, refused: Refused | None) -> DeletableGroupResult:
    if refused is None:
        return DeletableGroupResult(name)
    context.error = refused.error
    return DeletableGroupResult(name, ERROR_CODES[refused.error])
