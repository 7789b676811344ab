"""ListConfigResources (74), v0-1.

KIP-1142: resources whose configs can be described. Client metrics have no configs here, and there are no
loggers whose levels could be changed.

v0: client metrics only. v1: ResourceTypes.
"""

from typing import Final

from gateway.configs.alter import ResourceType
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

FIRST_VERSION_WITH_TYPES: Final = 1


async def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if context.header.api_version < FIRST_VERSION_WITH_TYPES:
        return ListConfigResourcesResponse()  # client metrics only
    wanted = set(request.resource_types or ResourceType)
    if not wanted.issubset(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if ResourceType.BROKER in wanted:
        found.append(ConfigResource(str(context.services.node_id), ResourceType.BROKER))
    if wanted & {ResourceType.TOPIC, ResourceType.GROUP}:
        refused = await context.services.topics.barrier(context.journal_deadline())
        if refused is not None:
            return ListConfigResourcesResponse(error_code=ERROR_CODES[refused.error])
    if ResourceType.GROUP in wanted:
        groups = context.services.configs.groups()
        found += [ConfigResource(name, ResourceType.GROUP) async for name in context.slices.paced(groups)]
    if ResourceType.TOPIC in wanted:
        topics = context.services.topics.all()
        found += [
            ConfigResource(topic.name, ResourceType.TOPIC) async for topic in context.slices.paced(topics)
        ]
    return ListConfigResourcesResponse(config_resources=found)
