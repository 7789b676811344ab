"""DeleteGroups, versions 0-2 (KIP-229): groups without members go, and their offsets with them."""

import asyncio
from typing import Final

from gateway.context import RequestContext
from gateway.handlers.auditing import audited
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ledger.requests import Refused

AT_ONCE: Final = 100


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """A group that is named twice is deleted, and answered, once."""
    groups, deadline = context.services.groups, context.journal_deadline()
    names = list(dict.fromkeys(request.groups_names))
    results = []
    for at in range(0, len(names), AT_ONCE):
        part = names[at : at + AT_ONCE]
        answers = await asyncio.gather(
            *(audited(context, groups.delete(name, deadline), "group.deleted", group=name) for name in part)
        )
        results += [_result(context, name, answer) for name, answer in zip(part, answers, strict=True)]
    return DeleteGroupsResponse(results=results)


def _result(context: RequestContext, name: str, refused: Refused | None) -> DeletableGroupResult:
    if refused is None:
        return DeletableGroupResult(name)
    context.error = refused.error
    return DeletableGroupResult(name, ErrorCode[refused.error])
