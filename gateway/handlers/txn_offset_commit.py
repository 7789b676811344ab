"""TxnOffsetCommit (28), v0-5.

KIP-98: offsets of a group that are committed if the transaction is.

v1: throttled after the response. v2: CommittedLeaderEpoch. v3: flexible; GenerationId, MemberId,
GroupInstanceId (KIP-447). v4: TRANSACTION_ABORTABLE (KIP-890). v5: the group is added to the transaction
(KIP-890, transaction version 2).
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.groups.messages import RETRIABLE
from gateway.groups.offset_manager import Committer
from gateway.groups.transactional_offsets import TransactionalProducer
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ledger.errors import ErrorName
from ledger.groups.state import BY_RETENTION, OffsetRow

FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_THAT_ADDS: Final = 5
ROWS_AT_ONCE: Final = 1_000
"""Offsets that are decided, and applied, in one event-loop iteration."""
UNITS_A_ROW: Final = 3

_Place: TypeAlias = tuple[str, TxnOffsetCommitRequestPartition]


async def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    slices, topics = context.slices, context.services.topics
    deadline = context.journal_deadline()
    places = [
        (topic.name, partition)
        async for topic in slices.paced(request.topics)
        async for partition in slices.paced(topic.partitions)
    ]
    named = [(name, partition.partition_index) async for name, partition in slices.paced(places)]
    is_confirmed = await topics.confirm_partitions_absent(named, deadline, slices)
    absent = ErrorName.UNKNOWN_TOPIC_OR_PARTITION if is_confirmed else RETRIABLE
    known: list[tuple[_Place, OffsetRow]] = []
    results: list[tuple[_Place, ErrorName]] = []
    async for place in slices.paced(places):
        row = _row(context, place)
        if row is None:
            results.append((place, absent))
        else:
            known.append((place, row))
    for start in range(0, len(known), ROWS_AT_ONCE):
        part = known[start : start + ROWS_AT_ONCE]
        if slices.is_due(UNITS_A_ROW * len(part)):
            await slices.next_slice()
        errors = await context.services.transactional_offsets.commit(
            _producer(context, request), _committer(request), [row for _, row in part], deadline
        )
        results += zip([place for place, _ in part], map(_for_version(context), errors), strict=True)
    found: dict[str, TxnOffsetCommitResponseTopic] = {}
    async for (name, partition), error in slices.paced(results):
        topic = found.setdefault(name, TxnOffsetCommitResponseTopic(name))
        topic.partitions.append(
            TxnOffsetCommitResponsePartition(partition.partition_index, ERROR_CODES[error])
        )
        if error is not ErrorName.NONE and context.error == ErrorName.NONE:
            context.error = error
    for kept in (places, named, known, results):
        slices.keep(kept)
    return TxnOffsetCommitResponse(topics=list(found.values()))


def _row(context: RequestContext, place: _Place) -> OffsetRow | None:
    """None if there is no such partition."""
    name, partition = place
    topic = context.services.topics.get(name)
    if topic is None or not 0 <= partition.partition_index < len(topic.partitions):
        return None
    return OffsetRow(
        topic.topic_id,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        BY_RETENTION,
        partition.committed_metadata or "",
    )


def _for_version(context: RequestContext) -> Callable[[ErrorName], ErrorName]:
    """The error that a client of this version gets."""
    if context.header.api_version < FIRST_VERSION_WITH_ABORTABLE:
        return lambda error: error
    # The group was not added to the transaction.
    return lambda error: ErrorName.TRANSACTION_ABORTABLE if error is ErrorName.INVALID_TXN_STATE else error


def _producer(context: RequestContext, request: TxnOffsetCommitRequest) -> TransactionalProducer:
    adds = context.header.api_version >= FIRST_VERSION_THAT_ADDS
    return TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch, adds)


def _committer(request: TxnOffsetCommitRequest) -> Committer:
    return Committer(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
