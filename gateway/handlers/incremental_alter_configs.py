"""IncrementalAlterConfigs (44), v0-1.

KIP-339: sets and unsets single configs, and adds items to lists or removes them. v1: flexible.
"""

from gateway.configs.alter import ConfigEdit, ResourceEdit
from gateway.requests.alter_resources import alter_resources, first_edits
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
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
    edits = context.slices.keep(
        [_edit(resource) async for resource in context.slices.paced(request.resources)]
    )
    results = await alter_resources(context, edits, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            _result(edit, refused)
            async for edit, refused in context.slices.paced(zip(edits, results, strict=True))
        ]
    )


def _edit(resource: AlterConfigsResource) -> ResourceEdit:
    config_edits = [
        ConfigEdit(config.name, config.config_operation, config.value)
        for config in first_edits(resource.configs)
    ]
    return ResourceEdit(resource.resource_type, resource.resource_name, config_edits)


def _result(edit: ResourceEdit, refused: Refused | None) -> AlterConfigsResourceResponse:
    if refused is None:
        return AlterConfigsResourceResponse(ErrorCode.NONE, None, edit.type, edit.name)
    return AlterConfigsResourceResponse(
        ERROR_CODES[refused.error], refused.message or None, edit.type, edit.name
    )
