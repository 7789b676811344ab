"""DeleteAcls, versions 1-3 (KIP-140; KIP-290): answered as by a Kafka without an authorizer."""

from gateway.context import RequestContext
from gateway.handlers.acl_elements import NO_AUTHORIZER, check_elements
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
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
