"""ListConfigResources, versions 0-1 (KIP-1142): which resources configs can be described of.

Client metrics have no configs here, and there are no loggers whose levels could be asked for.
"""

from typing import Final

from gateway.context import RequestContext
from gateway.topics.altering import ResourceType
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TYPES_FROM_VERSION: Final = 1


async def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if context.header.api_version < TYPES_FROM_VERSION:
        return ListConfigResourcesResponse()  # client metrics alone were meant
    wanted = set(request.resource_types or ResourceType)
    if not wanted.issubset(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if ResourceType.BROKER in wanted:
        found.append(ConfigResource(str(context.services.node_id), ResourceType.BROKER))
    if wanted & {ResourceType.TOPIC, ResourceType.GROUP}:
        refused = await context.services.topics.barrier(context.journal_deadline())
        if refused is not None:
            return ListConfigResourcesResponse(error_code=ErrorCode[refused.error])
    if ResourceType.GROUP in wanted:
        groups = context.services.configs.groups()
        found += [ConfigResource(name, ResourceType.GROUP) async for name in context.slices.paced(groups)]
    if ResourceType.TOPIC in wanted:
        topics = context.services.topics.all()
        found += [
            ConfigResource(topic.name, ResourceType.TOPIC) async for topic in context.slices.paced(topics)
        ]
    return ListConfigResourcesResponse(config_resources=found)
