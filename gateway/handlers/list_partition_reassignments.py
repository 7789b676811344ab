"""ListPartitionReassignments (46), v0.

KIP-455: no partition ever moves to other brokers.
"""

from gateway.requests.context import RequestContext
from gateway.wire.messages.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
