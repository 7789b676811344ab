"""AlterConfigs, versions 0-2 (KIP-133): all configs of a topic anew; what is not named is unset."""

from gateway.context import RequestContext
from gateway.handlers.altering import alter_resources, first_edits
from gateway.topics.altering import ConfigEdit, ResourceEdit
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ledger.requests import ConfigOp, Refused


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    edits = [_edit(resource) async for resource in context.slices.paced(request.resources)]
    answers = await alter_resources(context, edits, request.validate_only)
    return AlterConfigsResponse(
        responses=[_result(edit, answer) for edit, answer in zip(edits, answers, strict=True)]
    )


def _edit(resource: AlterConfigsResource) -> ResourceEdit:
    lines = [
        ConfigEdit(config.name, ConfigOp.SET.value, config.value) for config in first_edits(resource.configs)
    ]
    return ResourceEdit(resource.resource_type, resource.resource_name, lines, is_whole=True)


def _result(edit: ResourceEdit, refused: Refused | None) -> AlterConfigsResourceResponse:
    if refused is None:
        return AlterConfigsResourceResponse(ErrorCode.NONE, None, edit.type, edit.name)
    return AlterConfigsResourceResponse(
        ErrorCode[refused.error], refused.message or None, edit.type, edit.name
    )
