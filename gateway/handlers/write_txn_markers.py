"""WriteTxnMarkers (27), v1-2.

KIP-98: ends what a producer has open in partitions, whatever its transactional id says. Between brokers it is
how transactions end; here only tools send it, to free partitions of a transaction that hangs (KIP-664). The
journal alone says who coordinates a transaction, so the epoch of a coordinator is not compared.

v1: flexible. v2: TransactionVersion (KIP-1228).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gateway.requests.audit import UNKNOWN_OUTCOME, audit, in_words
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ledger.errors import ErrorName, StoreError
from ledger.partitions.markers import MAX_PRODUCER_ID
from ledger.transactions.requests import MarkersWritten, TopicPartition, WriteMarkers

AT_ONCE: Final = 500
"""Partitions of one request to the ledger: all get their markers in one step."""
FIRST_BUMPING_VERSION: Final = 2
"""Of transactions: each ends with a new epoch."""
RETRIED: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""The journal did not answer: tools look the leader up again, and repeat the request."""


class _Partition(NamedTuple):
    topic: str
    partition: int


Results = dict[int, dict[str, dict[int, ErrorCode]]]
"""By producer id, topic and partition: several markers of one producer have one result."""


async def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    slices = context.slices
    requested = [
        (topic.name, index)
        async for marker in slices.paced(request.markers)
        async for topic in slices.paced(marker.topics)
        async for index in slices.paced(topic.partition_indexes)
    ]
    is_confirmed = await context.services.topics.confirm_partitions_absent(
        slices.keep(requested), context.journal_deadline(), slices
    )
    results: Results = {}
    for marker in request.markers:
        await _write(context, marker, is_confirmed, results)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id, _topics(topics))
            async for producer_id, topics in slices.paced(results.items())
        ]
    )


def _topics(topics: dict[str, dict[int, ErrorCode]]) -> list[WritableTxnMarkerTopicResult]:
    return [
        WritableTxnMarkerTopicResult(
            name, [WritableTxnMarkerPartitionResult(index, error) for index, error in partitions.items()]
        )
        for name, partitions in topics.items()
    ]


async def _write(
    context: RequestContext, marker: WritableTxnMarker, is_confirmed: bool, results: Results
) -> None:
    service, slices = context.services.topics, context.slices
    wanted: dict[_Partition, TopicPartition] = {}
    async for partition in slices.paced(_partitions(marker)):
        topic = service.get(partition.topic)
        if topic is None or not service.has_partition(*partition):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_confirmed else RETRIED
        elif not _is_possible(marker):
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            wanted[partition] = TopicPartition(topic.topic_id, partition.partition)
            error = ErrorCode.NONE
        _put(context, results, marker, partition, error)
    named = list(wanted)
    for start in range(0, len(named), AT_ONCE):
        part = named[start : start + AT_ONCE]
        errors = await _submit(context, marker, [wanted[partition] for partition in part])
        _audit(context, marker, part, errors)
        async for partition, error in slices.paced(zip(part, errors, strict=True)):
            _put(context, results, marker, partition, error)


def _partitions(marker: WritableTxnMarker) -> Iterator[_Partition]:
    return (_Partition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes)


def _is_possible(marker: WritableTxnMarker) -> bool:
    """Whether there can be such a marker. Kafka fails on others without a name for it."""
    is_producer = 0 <= marker.producer_id <= MAX_PRODUCER_ID
    return is_producer and marker.producer_epoch >= 0 and marker.transaction_version >= 0


async def _submit(
    context: RequestContext, marker: WritableTxnMarker, partitions: Sequence[TopicPartition]
) -> Sequence[ErrorCode]:
    request = WriteMarkers(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        partitions,
        bumps=marker.transaction_version >= FIRST_BUMPING_VERSION,
    )
    try:
        written = await context.services.shard.ask(request, context.journal_deadline())
    except (StoreError, TimeoutError):
        return [RETRIED] * len(partitions)
    assert isinstance(written, MarkersWritten)
    return [ErrorCode.NONE if error is None else ERROR_CODES[ErrorName(error)] for error in written.results]


def _put(
    context: RequestContext,
    results: Results,
    marker: WritableTxnMarker,
    partition: _Partition,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        context.error = error.name
    topics = results.setdefault(marker.producer_id, {})
    topics.setdefault(partition.topic, {})[partition.partition] = error


def _audit(
    context: RequestContext,
    marker: WritableTxnMarker,
    partitions: Sequence[_Partition],
    errors: Sequence[ErrorCode],
) -> None:
    """One event for the partitions of one step."""
    written = [name for name, error in zip(partitions, errors, strict=True) if error is ErrorCode.NONE]
    is_unknown = RETRIED in errors
    if written or is_unknown:
        audit(
            context,
            "transactions.marked",
            UNKNOWN_OUTCOME if is_unknown else None,
            producer_id=marker.producer_id,
            epoch=marker.producer_epoch,
            end="commit" if marker.transaction_result else "abort",
            partitions=in_words(written or partitions, lambda name: f"{name.topic}-{name.partition}"),
        )
