"""IncrementalAlterConfigs, versions 0-1 (KIP-339): single configs are set, unset, or changed as lists."""

from gateway.context import RequestContext
from gateway.handlers.altering import alter_resources, first_edits
from gateway.topics.altering import ConfigEdit, ResourceEdit
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ledger.requests import Refused


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    edits = [_edit(resource) async for resource in context.slices.paced(request.resources)]
    answers = await alter_resources(context, edits, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[_result(edit, answer) for edit, answer in zip(edits, answers, strict=True)]
    )


def _edit(resource: AlterConfigsResource) -> ResourceEdit:
    lines = [
        ConfigEdit(config.name, config.config_operation, config.value)
        for config in first_edits(resource.configs)
    ]
    return ResourceEdit(resource.resource_type, resource.resource_name, lines)


def _result(edit: ResourceEdit, refused: Refused | None) -> AlterConfigsResourceResponse:
    if refused is None:
        return AlterConfigsResourceResponse(ErrorCode.NONE, None, edit.type, edit.name)
    return AlterConfigsResourceResponse(
        ErrorCode[refused.error], refused.message or None, edit.type, edit.name
    )
