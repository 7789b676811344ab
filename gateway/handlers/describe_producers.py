"""DescribeProducers, version 0 (KIP-664): who has written into a partition with a producer id.

There are no transactions: no coordinator epoch, no open transaction. Timestamps are those of the journal
entries that took up the producers' last batches.
"""

from typing import Final

from gateway.context import RequestContext
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ledger.partitions import PartitionLog
from ledger.topics import check_topic_name

NO_COORDINATOR: Final = -1
NO_SEQUENCE: Final = -1


async def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    may_deny = await context.services.topics.prove_partitions_unknown(asked, context.journal_deadline())
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [_partition(context, topic.name, index, may_deny) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(context: RequestContext, name: str, index: int, may_deny: bool) -> PartitionResponse:
    reason = check_topic_name(name)
    if reason is not None:
        return PartitionResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    log = context.services.topics.partition(name, index)
    if log is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if may_deny else ErrorCode.REQUEST_TIMED_OUT
        return PartitionResponse(index, error, "There is no such partition." if may_deny else None)
    return PartitionResponse(index, active_producers=_producers(log))


def _producers(log: PartitionLog) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id,
            state.epoch,
            NO_SEQUENCE if state.last_sequence is None else state.last_sequence,
            state.last_ms,
            NO_COORDINATOR,
        )
        for producer_id, state in log.producers.items()
    ]
