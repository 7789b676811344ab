"""AlterPartitionReassignments (45), v0-1.

KIP-455. Every partition is on this gateway and stays there: nothing moves, so nothing can be cancelled.

v1: AllowReplicationFactorChange.
"""

from gateway.requests.context import RequestContext
from gateway.topics.growing import check_brokers
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ledger.errors import ErrorName
from ledger.requests import Refused


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    slices = context.slices
    deadline = context.change_deadline(request.timeout_ms)
    is_confirmed = await context.services.topics.barrier(deadline) is None
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        # Kafka returns "" for an empty request, and null otherwise.
        error_message=None if request.topics else "",
        responses=[
            ReassignableTopicResponse(
                topic.name,
                [
                    _result(part, _check(context, topic.name, part, is_confirmed))
                    async for part in slices.paced(topic.partitions)
                ],
            )
            async for topic in slices.paced(request.topics)
        ],
    )


def _check(
    context: RequestContext, name: str, part: ReassignablePartition, is_confirmed: bool
) -> Refused | None:
    if not is_confirmed:
        return Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")
    if not context.services.topics.has_partition(name, part.partition_index):
        return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
    if part.replicas is None:
        return Refused(ErrorName.NO_REASSIGNMENT_IN_PROGRESS)
    reason = check_brokers(part.replicas, context.services.node_id)
    return None if reason is None else Refused(ErrorName.INVALID_REPLICA_ASSIGNMENT, reason)


def _result(part: ReassignablePartition, refused: Refused | None) -> ReassignablePartitionResponse:
    if refused is None:
        return ReassignablePartitionResponse(part.partition_index, ErrorCode.NONE, None)
    return ReassignablePartitionResponse(
        part.partition_index, ERROR_CODES[refused.error], refused.message or None
    )
