"""DescribeClientQuotas, versions 0-1 (KIP-546)."""

from typing import Final

from gateway.context import RequestContext
from gateway.quotas.describing import Component, find_quotas
from gateway.wire.errors import ErrorCode
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
    # There are three types, and none may be given twice: more are refused whatever they are.
    parts = request.components[:MAX_COMPONENTS]
    asked = [Component(part.entity_type, part.match_type, part.match) for part in parts]
    found = find_quotas(context.services.shard.state.quotas.by_entity, asked, request.strict)
    if isinstance(found, Refused):
        return DescribeClientQuotasResponse(0, ErrorCode[found.error], found.message, None)
    entries = [
        EntryData(
            [EntityData(kind, name) for kind, name in entity],
            [ValueData(key, value) for key, value in values.items()],
        )
        async for entity, values in context.slices.paced(found)
    ]
    # As Kafka: no error, and an empty text.
    return DescribeClientQuotasResponse(error_message="", entries=entries)
