"""ElectLeaders (43), v0-2.

KIP-183: this gateway leads every partition already.

v1: ElectionType (KIP-460), a top-level error. v2: flexible.
"""

from typing import Final

from gateway.requests.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    is_known = request.election_type in (PREFERRED, UNCLEAN)
    error = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    if request.topic_partitions is None:
        # For all partitions Kafka returns only those for which an election took place.
        topics = context.services.topics.all() if is_known else ()
        results = [ReplicaElectionResult(topic.name) async for topic in context.slices.paced(topics)]
        return ElectLeadersResponse(0, error, results)
    is_confirmed, slices = False, context.slices
    if is_known:
        # That there is a partition, which has a leader, is refused by the newest state as much as that there
        # is none.
        deadline = context.change_deadline(request.timeout_ms)
        is_confirmed = await context.services.topics.barrier(deadline) is None
    results = [
        ReplicaElectionResult(
            topic.topic,
            [
                _partition(context, topic.topic, index, is_confirmed)
                if is_known
                else PartitionResult(index, error, f"There is no election of type {request.election_type}.")
                async for index in slices.paced(topic.partitions)
            ],
        )
        async for topic in slices.paced(request.topic_partitions)
    ]
    return ElectLeadersResponse(0, error, results)


def _partition(context: RequestContext, name: str, index: int, is_confirmed: bool) -> PartitionResult:
    if not is_confirmed:
        return PartitionResult(index, ErrorCode.REQUEST_TIMED_OUT, "The journal did not answer in time.")
    if context.services.topics.has_partition(name, index):
        return PartitionResult(
            index, ErrorCode.ELECTION_NOT_NEEDED, "This gateway leads the partition already."
        )
    return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
