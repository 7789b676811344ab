"""CreateAcls (30), v1-3.

KIP-140, KIP-290: refused as by a Kafka without an authorizer.

v1: resource pattern type; throttled after the response. v2: flexible. v3: user resources.
"""

from gateway.requests.acl_elements import NO_AUTHORIZER, check_elements
from gateway.requests.audit import denied
from gateway.requests.context import RequestContext
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
    denied(context, context.error, NO_AUTHORIZER)
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
