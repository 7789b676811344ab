"""DescribeProducers (61), v0.

KIP-664: which producer ids have written into a partition, and where their open transactions begin. Timestamps
are those of the journal entries of the producers' last batches.
"""

from typing import Final

from gateway.requests.context import RequestContext
from gateway.requests.response_size import ResponseTooLarge
from gateway.transactions.describe import coordinator_epoch
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.topics.state import check_topic_name

NO_TRANSACTION: Final = -1
NO_SEQUENCE: Final = -1
PRODUCER_BYTES: Final = 37
"""Of one producer, encoded."""


async def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """A partition that is named again has another result, a copy of the first."""
    requested = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    is_confirmed = await context.services.topics.confirm_partitions_absent(
        requested, context.journal_deadline(), context.slices
    )
    described = _Described(context, is_confirmed)
    topics = []
    async for topic in context.slices.paced(request.topics):
        indexes = context.slices.paced(topic.partition_indexes)
        topics.append(TopicResponse(topic.name, [described.partition(topic.name, i) async for i in indexes]))
    return DescribeProducersResponse(topics=topics)


class _Described:
    """The partitions of one response."""

    def __init__(self, context: RequestContext, is_confirmed: bool) -> None:
        self._context = context
        self._is_confirmed = is_confirmed
        self._size = context.response_size()
        self._known: dict[tuple[str, int], PartitionResponse] = {}

    def partition(self, name: str, index: int) -> PartitionResponse:
        known = self._known.get((name, index))
        try:
            if known is not None:
                self._size.take(encoded_bytes=PRODUCER_BYTES * len(known.active_producers))
                return known
            described = self._known[name, index] = self._describe(name, index)
        except ResponseTooLarge:
            return PartitionResponse(index, ErrorCode.INVALID_REQUEST, "The response would be too large.")
        return described

    def _describe(self, name: str, index: int) -> PartitionResponse:
        reason = check_topic_name(name)
        if reason is not None:
            return PartitionResponse(
                index, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}"
            )
        log = self._context.services.topics.partition(name, index)
        if log is None:
            error = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._is_confirmed else ErrorCode.REQUEST_TIMED_OUT
            )
            return PartitionResponse(
                index, error, "There is no such partition." if self._is_confirmed else None
            )
        producers = len(log.producers)
        self._size.take(producers, PRODUCER_BYTES * producers)
        self._context.slices.is_due(producers)  # many producers: the next partition waits for a slice
        state = self._context.services.shard.state
        return PartitionResponse(index, active_producers=_producers(state, log))


def _producers(ledger: LedgerState, log: PartitionLog) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id,
            state.epoch,
            NO_SEQUENCE if state.last_sequence is None else state.last_sequence,
            state.last_ms,
            coordinator_epoch(ledger, log, producer_id, state),
            log.isolation.open.get(producer_id, NO_TRANSACTION),
        )
        for producer_id, state in log.producers.items()
    ]
