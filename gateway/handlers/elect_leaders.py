"""ElectLeaders, versions 0-2 (KIP-183, KIP-460): whoever is asked leads already."""

from typing import Final

from gateway.context import RequestContext
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
        # Of all partitions Kafka names those alone for which there was something to do.
        topics = context.services.topics.all() if is_known else ()
        answered = [ReplicaElectionResult(topic.name) async for topic in context.slices.paced(topics)]
        return ElectLeadersResponse(0, error, answered)
    may_deny, slices = False, context.slices
    if is_known:
        asked = [
            (topic.topic, index)
            async for topic in slices.paced(request.topic_partitions)
            for index in topic.partitions
        ]
        deadline = context.deadline(request.timeout_ms)
        may_deny = await context.services.topics.prove_partitions_unknown(asked, deadline, slices)
    results = [
        ReplicaElectionResult(
            topic.topic,
            [
                _partition(context, topic.topic, index, may_deny)
                if is_known
                else PartitionResult(index, error, f"There is no election of type {request.election_type}.")
                async for index in slices.paced(topic.partitions)
            ],
        )
        async for topic in slices.paced(request.topic_partitions)
    ]
    return ElectLeadersResponse(0, error, results)


def _partition(context: RequestContext, name: str, index: int, may_deny: bool) -> PartitionResult:
    if context.services.topics.partition(name, index) is not None:
        return PartitionResult(
            index, ErrorCode.ELECTION_NOT_NEEDED, "The gateway that is asked leads the partition."
        )
    if not may_deny:
        return PartitionResult(index, ErrorCode.REQUEST_TIMED_OUT, "The journal did not answer in time.")
    return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
