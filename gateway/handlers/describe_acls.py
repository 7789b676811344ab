"""DescribeAcls (29), v1-3.

KIP-140, KIP-290: refused as by a Kafka without an authorizer.

v1: resource pattern type; throttled after the response. v2: flexible. v3: user resources.
"""

from gateway.requests.acl_elements import NO_AUTHORIZER_AT_BROKER, check_elements
from gateway.requests.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_elements(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_AT_BROKER)
