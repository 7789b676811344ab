"""DeleteGroups, versions 0-2 (KIP-229): groups without members go, and their offsets with them."""

from gateway.context import RequestContext
from gateway.handlers.auditing import audited
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ledger.requests import Refused


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """A group that is named twice is deleted, and answered, once."""
    groups, deadline = context.services.groups, context.journal_deadline()
    names = list(dict.fromkeys(request.groups_names))

    async def delete(name: str) -> DeletableGroupResult:
        answer = await audited(context, groups.delete(name, deadline), "group.deleted", group=name)
        return _result(context, name, answer)

    return DeleteGroupsResponse(results=await context.slices.gather(delete, names))


def _result(context: RequestContext, name: str, refused: Refused | None) -> DeletableGroupResult:
    if refused is None:
        return DeletableGroupResult(name)
    context.error = refused.error
    return DeletableGroupResult(name, ErrorCode[refused.error])
