"""CreateAcls, versions 1-3 (KIP-140; KIP-290): answered as by a Kafka without an authorizer."""

from gateway.context import RequestContext
from gateway.handlers.acl_elements import NO_AUTHORIZER, check_elements
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    for rule in request.creations:
        check_elements(rule.resource_type, rule.resource_pattern_type, rule.operation, rule.permission_type)
    context.error = ErrorCode.SECURITY_DISABLED.name
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
