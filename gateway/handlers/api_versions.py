"""ApiVersions, versions 0-4 (KIP-35, KIP-511). Printed from what the gateway answers.

Features (KIP-584, KIP-1022) are those of Kafka 4.3.1, at the levels that are built: clients switch to what a
finalized level promises. docs/decisions/0008 says why each has the one it has.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.context import RequestContext
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
        "transaction.version": 0,
    }
)
"""The one level of each that there is, which is both all that is supported and what is in force."""
FEATURES_EPOCH: Final = 1
"""Grows with every change of FEATURES: a client believes the gateway that tells the highest."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NAMED_FROM_VERSION: Final = 3
FEATURES_FROM_VERSION: Final = 3
ZERO_LEVELS_FROM_VERSION: Final = 4
"""Clients that speak older ones refuse a range that begins with 0 (KIP-1022)."""


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.header.api_version >= NAMED_FROM_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = ApiVersionsResponse(api_keys=_api_keys(context))
    if context.header.api_version >= FEATURES_FROM_VERSION:
        lowest = 0 if context.header.api_version >= ZERO_LEVELS_FROM_VERSION else 1
        response.supported_features = [
            SupportedFeatureKey(name, level, level) for name, level in FEATURES.items() if level >= lowest
        ]
        # A feature at level 0 is off, which is told by its absence.
        response.finalized_features = [
            FinalizedFeatureKey(name, level, level) for name, level in FEATURES.items() if level > 0
        ]
        response.finalized_features_epoch = FEATURES_EPOCH
    return response


def too_new(context: RequestContext) -> ApiVersionsResponse:
    """The answer in version 0 to a version that is not known: which ones are (KIP-511)."""
    context.error = ErrorCode.UNSUPPORTED_VERSION.name
    own = [row for row in _api_keys(context) if row.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _api_keys(context: RequestContext) -> list[ApiVersion]:
    return [ApiVersion(key, low, high) for key, (low, high) in sorted(context.services.served.items())]
