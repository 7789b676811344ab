"""ListPartitionReassignments, version 0 (KIP-455): no partition is ever on its way to other brokers."""

from gateway.context import RequestContext
from gateway.wire.messages.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
