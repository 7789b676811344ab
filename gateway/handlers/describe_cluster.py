"""DescribeCluster (60), v0-2.

KIP-700: this gateway alone, at the address of the listener.

v1: EndpointType (KIP-919). v2: IncludeFencedBrokers (KIP-1073).
"""

from typing import Final

from gateway.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from gateway.requests.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINT: Final = 1


async def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKER_ENDPOINT:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == 2
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This endpoint is of type broker.",
        )
    services, listener = context.services, context.listener
    return DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=[DescribeClusterBroker(services.node_id, listener.host, listener.port)],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )
