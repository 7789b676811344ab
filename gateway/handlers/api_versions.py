"""ApiVersions (18), v0-4.

KIP-35, KIP-511: printed from what the gateway serves. Features (KIP-584, KIP-1022) are those of Kafka 4.3.1,
at the levels that are built: clients rely on what a finalized level promises. docs/decisions/0008 gives the
reason for each.

v1: throttle time. v2: throttled after the response. v3: flexible, but for the response header;
ClientSoftwareName and ClientSoftwareVersion; features. v4: features from level 0 on.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.requests.context import RequestContext
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FEATURES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "eligible.leader.replicas.version": 0,
        "group.version": 0,
        "kraft.version": 0,
        "metadata.version": 30,
        "share.version": 0,
        "streams.version": 0,
        "transaction.version": 2,
    }
)
"""The only level of each: both supported and finalized."""
FEATURES_EPOCH: Final = 2
"""Grows with every change of FEATURES: a client believes the gateway with the highest epoch."""
FEATURES_BEFORE_TRANSACTIONS: Final = MappingProxyType({**FEATURES, "transaction.version": 0})
"""Of a ledger below LEVEL_WITH_TRANSACTIONS, with an epoch of its own."""
EPOCH_BEFORE_TRANSACTIONS: Final = 1

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_VERSION_WITH_CLIENT_NAME: Final = 3
FIRST_VERSION_WITH_FEATURES: Final = 3
FIRST_VERSION_WITH_ZERO_LEVELS: Final = 4
"""Clients of older versions refuse a range that begins with 0 (KIP-1022)."""
NOT_FROM_ZERO: Final = "metadata.version"
"""The only feature whose range does not begin with 0 in Kafka: clients of older versions see it."""


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.header.api_version >= FIRST_VERSION_WITH_CLIENT_NAME and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = ApiVersionsResponse(api_keys=_api_keys(context))
    if context.header.api_version >= FIRST_VERSION_WITH_FEATURES:
        has_transactions = context.services.transactions.is_served
        features = FEATURES if has_transactions else FEATURES_BEFORE_TRANSACTIONS
        has_zero = context.header.api_version >= FIRST_VERSION_WITH_ZERO_LEVELS
        response.supported_features = [
            SupportedFeatureKey(name, level, level)
            for name, level in features.items()
            if has_zero or name == NOT_FROM_ZERO
        ]
        # A feature at level 0 is off, which its absence says.
        response.finalized_features = [
            FinalizedFeatureKey(name, level, level) for name, level in features.items() if level > 0
        ]
        response.finalized_features_epoch = FEATURES_EPOCH if has_transactions else EPOCH_BEFORE_TRANSACTIONS
    return response


def too_new(context: RequestContext) -> ApiVersionsResponse:
    """The response, in version 0, to an unknown version: it lists the known ones (KIP-511)."""
    context.error = ErrorCode.UNSUPPORTED_VERSION.name
    own = [row for row in _api_keys(context) if row.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _api_keys(context: RequestContext) -> list[ApiVersion]:
    return [ApiVersion(key, low, high) for key, (low, high) in sorted(context.services.served.items())]
