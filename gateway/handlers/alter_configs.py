"""AlterConfigs (33), v0-2.

KIP-133: replaces all configs of a resource; what is not named goes back to its default.

v1: throttled after the response. v2: flexible.
"""

from gateway.configs.alter import ConfigEdit, ResourceEdit
from gateway.requests.alter_resources import alter_resources, first_edits
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ledger.requests import Refused
from ledger.settings.configs import ConfigOp


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    edits = context.slices.keep(
        [_edit(resource) async for resource in context.slices.paced(request.resources)]
    )
    results = await alter_resources(context, edits, request.validate_only)
    return AlterConfigsResponse(
        responses=[
            _result(edit, refused)
            async for edit, refused in context.slices.paced(zip(edits, results, strict=True))
        ]
    )


def _edit(resource: AlterConfigsResource) -> ResourceEdit:
    config_edits = [
        ConfigEdit(config.name, ConfigOp.SET.value, config.value) for config in first_edits(resource.configs)
    ]
    return ResourceEdit(resource.resource_type, resource.resource_name, config_edits, is_whole=True)


def _result(edit: ResourceEdit, refused: Refused | None) -> AlterConfigsResourceResponse:
    if refused is None:
        return AlterConfigsResourceResponse(ErrorCode.NONE, None, edit.type, edit.name)
    return AlterConfigsResourceResponse(
        ERROR_CODES[refused.error], refused.message or None, edit.type, edit.name
    )
