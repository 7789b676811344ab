"""DescribeAcls, versions 1-3 (KIP-140; KIP-290): answered as by a Kafka without an authorizer."""

from gateway.context import RequestContext
from gateway.handlers.acl_elements import NO_AUTHORIZER_AT_BROKER, check_elements
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_elements(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_AT_BROKER)
