"""DeleteAcls (31), v1-3.

KIP-140, KIP-290: refused as by a Kafka without an authorizer.

v1: resource pattern type; throttled after the response. v2: flexible. v3: user resources.
"""

from gateway.requests.acl_elements import NO_AUTHORIZER, check_elements
from gateway.requests.audit import denied
from gateway.requests.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for rule in request.filters:
        check_elements(
            rule.resource_type_filter, rule.pattern_type_filter, rule.operation, rule.permission_type
        )
    context.error = ErrorCode.SECURITY_DISABLED.name
    denied(context, context.error, NO_AUTHORIZER)
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
