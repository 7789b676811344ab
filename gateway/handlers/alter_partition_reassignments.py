"""AlterPartitionReassignments, versions 0-1 (KIP-455): a partition lies where it lies, on the gateway that
is asked; nothing moves, so there is nothing to cancel."""

from gateway.context import RequestContext
from gateway.topics.growing import check_brokers
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ledger.requests import Refused


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    slices = context.slices
    asked = [
        (topic.name, part.partition_index)
        async for topic in slices.paced(request.topics)
        for part in topic.partitions
    ]
    deadline = context.deadline(request.timeout_ms)
    may_deny = await context.services.topics.prove_partitions_unknown(asked, deadline, slices)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        # Kafka says "" where nothing was asked, and null otherwise.
        error_message=None if request.topics else "",
        responses=[
            ReassignableTopicResponse(
                topic.name,
                [
                    _result(part, _check(context, topic.name, part, may_deny))
                    async for part in slices.paced(topic.partitions)
                ],
            )
            async for topic in slices.paced(request.topics)
        ],
    )


def _check(context: RequestContext, name: str, part: ReassignablePartition, may_deny: bool) -> Refused | None:
    if context.services.topics.partition(name, part.partition_index) is None:
        if not may_deny:
            return Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")
        return Refused("UNKNOWN_TOPIC_OR_PARTITION", "There is no such partition.")
    if part.replicas is None:
        return Refused("NO_REASSIGNMENT_IN_PROGRESS")
    reason = check_brokers(part.replicas, context.services.node_id)
    return None if reason is None else Refused("INVALID_REPLICA_ASSIGNMENT", reason)


def _result(part: ReassignablePartition, refused: Refused | None) -> ReassignablePartitionResponse:
    if refused is None:
        return ReassignablePartitionResponse(part.partition_index, ErrorCode.NONE, None)
    return ReassignablePartitionResponse(
        part.partition_index, ErrorCode[refused.error], refused.message or None
    )
