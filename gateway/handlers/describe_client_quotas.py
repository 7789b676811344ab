"""DescribeClientQuotas, versions 0-1 (KIP-546)."""

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


async def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    asked = [Component(part.entity_type, part.match_type, part.match) for part in request.components]
    found = find_quotas(context.services.shard.state.quotas.by_entity, asked, request.strict)
    if isinstance(found, Refused):
        return DescribeClientQuotasResponse(0, ErrorCode[found.error], found.message, None)
    entries = [
        EntryData(
            [EntityData(kind, name) for kind, name in entity],
            [ValueData(key, value) for key, value in values.items()],
        )
        for entity, values in found
    ]
    # As Kafka: no error, and an empty text.
    return DescribeClientQuotasResponse(error_message="", entries=entries)
