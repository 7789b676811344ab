"""DescribeProducers, version 0 (KIP-664): who has written into a partition with a producer id.

There are no transactions: no coordinator epoch, no open transaction. Timestamps are those of the journal
entries that took up the producers' last batches.
"""

from typing import Final

from gateway.context import RequestContext
from gateway.requests.response_size import ResponseTooLarge
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
PRODUCER_BYTES: Final = 37
"""Of one producer, encoded."""


async def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """A partition that is named again is answered again, from what was found the first time."""
    asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    may_deny = await context.services.topics.prove_partitions_unknown(
        asked, context.journal_deadline(), context.slices
    )
    described = _Described(context, may_deny)
    topics = []
    async for topic in context.slices.paced(request.topics):
        indexes = context.slices.paced(topic.partition_indexes)
        topics.append(TopicResponse(topic.name, [described.partition(topic.name, i) async for i in indexes]))
    return DescribeProducersResponse(topics=topics)


class _Described:
    """The partitions of one response."""

    def __init__(self, context: RequestContext, may_deny: bool) -> None:
        self._context = context
        self._may_deny = may_deny
        self._size = context.response_size()
        self._known: dict[tuple[str, int], PartitionResponse] = {}

    def partition(self, name: str, index: int) -> PartitionResponse:
        known = self._known.get((name, index))
        try:
            if known is not None:
                self._size.take(encoded_bytes=PRODUCER_BYTES * len(known.active_producers))
                return known
            made = self._known[name, index] = self._made(name, index)
        except ResponseTooLarge:
            return PartitionResponse(index, ErrorCode.INVALID_REQUEST, "The response would be too large.")
        return made

    def _made(self, name: str, index: int) -> PartitionResponse:
        reason = check_topic_name(name)
        if reason is not None:
            return PartitionResponse(
                index, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}"
            )
        log = self._context.services.topics.partition(name, index)
        if log is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._may_deny else ErrorCode.REQUEST_TIMED_OUT
            return PartitionResponse(index, error, "There is no such partition." if self._may_deny else None)
        producers = len(log.producers)
        self._size.take(producers, PRODUCER_BYTES * producers)
        self._context.slices.is_due(producers)  # the next partition waits for a slice, if these were many
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
