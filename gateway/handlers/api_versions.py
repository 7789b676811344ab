"""ApiVersions, versions 0-4 (KIP-35, KIP-511). Printed from what the gateway answers.

No features are told: none of Kafka's (`metadata.version`, `transaction.version`, ...) is what happens here,
and clients take their absence for the oldest level.
"""

import re
from typing import Final

from gateway.context import RequestContext
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NAMED_FROM_VERSION: Final = 3


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.header.api_version >= NAMED_FROM_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_api_keys(context))


def too_new(context: RequestContext) -> ApiVersionsResponse:
    """The answer in version 0 to a version that is not known: which ones are (KIP-511)."""
    context.error = ErrorCode.UNSUPPORTED_VERSION.name
    own = [row for row in _api_keys(context) if row.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _api_keys(context: RequestContext) -> list[ApiVersion]:
    return [ApiVersion(key, low, high) for key, (low, high) in sorted(context.services.served.items())]
