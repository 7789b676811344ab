"""DescribeClientQuotas (48), v0-1.

KIP-546. v1: flexible.
"""

from typing import Final

from gateway.quotas.describe import Component, find_quotas
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ledger.requests import Refused

MAX_COMPONENTS: Final = 8


async def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    # There are three types, and none may be given twice: a longer list is refused whatever is in it.
    parts = request.components[:MAX_COMPONENTS]
    components = [Component(part.entity_type, part.match_type, part.match) for part in parts]
    found = find_quotas(context.services.shard.state.quotas.by_entity, components, request.strict)
    if isinstance(found, Refused):
        return DescribeClientQuotasResponse(0, ERROR_CODES[found.error], found.message, None)
    entries = [
        EntryData(
            [EntityData(kind, name) for kind, name in entity],
            [ValueData(key, value) for key, value in values.items()],
        )
        async for entity, values in context.slices.paced(found)
    ]
    # As in Kafka: no error, and an empty message.
    return DescribeClientQuotasResponse(error_message="", entries=entries)
