"""AddPartitionsToTxn (24), v0-5.

KIP-98: partitions are going to be written in the transaction, which begins with them unless it is open. A
partition that does not exist fails all others of its transaction. From v4 on brokers send it to each other,
for several transactions at once, and may only want to verify that they have the partitions: any client may
do so here, as in a broker without an authorizer.

v1: throttled after the response. v2: PRODUCER_FENCED. v3: flexible. v4: Transactions, VerifyOnly, ErrorCode
(KIP-890). v5: TRANSACTION_ABORTABLE (KIP-890).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from gateway.completion import Cancellable, Completion
from gateway.requests.context import RequestContext
from gateway.requests.deferred import defer
from gateway.requests.responding import Responding
from gateway.transactions.coordinator import error_in_version
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ledger.errors import ErrorName
from ledger.requests import LedgerResult, Refused
from ledger.transactions.requests import MAX_PARTITIONS, AddToTransaction, TopicPartition

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_BATCHES: Final = 4
MAX_AT_ONCE: Final = 50
"""Partitions that are looked up in one event-loop iteration."""
_NOT_ATTEMPTED: Final = ErrorCode.OPERATION_NOT_ATTEMPTED

_Named: TypeAlias = tuple[str, int]
_Errors: TypeAlias = Mapping[_Named, ErrorCode]


def start(
    context: RequestContext, request: AddPartitionsToTxnRequest, completion: Completion[object]
) -> Cancellable:
    """Submits before this returns what a client sends: one transaction with few partitions, if all exist."""
    if context.header.api_version < FIRST_VERSION_WITH_BATCHES:
        transaction = _of_client(request)
        if sum([len(topic.partitions) for topic in transaction.topics]) <= MAX_AT_ONCE:
            partitions = _known(context, transaction)
            if partitions is not None:
                responding = Responding(completion, partial(_response, context, transaction))
                return context.services.transactions.start_add(
                    _adding(transaction, partitions), context.journal_deadline(), responding
                )
    return defer(context, partial(wait, context, request), completion)


async def wait(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if context.header.api_version < FIRST_VERSION_WITH_BATCHES:
        result = await _result(context, _of_client(request))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
    results = await context.slices.gather(partial(_result, context), request.transactions)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _known(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> list[TopicPartition] | None:
    """Its partitions, each once; None if one does not exist as far as is known here."""
    topics = context.services.topics
    partitions: dict[TopicPartition, None] = {}
    for topic in transaction.topics:
        for index in topic.partitions:
            log = topics.partition(topic.name, index)
            if log is None:
                return None
            partitions[TopicPartition(log.topic_id, log.index)] = None
    return list(partitions)


def _response(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction, result: LedgerResult
) -> AddPartitionsToTxnResponse:
    """All partitions have the same outcome."""
    code = ErrorCode.NONE
    if isinstance(result, Refused):
        code = _code(context, result)
        context.error = code.name
    topics = [
        AddPartitionsToTxnTopicResult(
            topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
        )
        for topic in transaction.topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _adding(
    transaction: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition]
) -> AddToTransaction:
    return AddToTransaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        # One more than may be: so many are refused, and the others need not be looked at.
        partitions[: MAX_PARTITIONS + 1],
    )


async def _result(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    errors = await _errors(context, transaction)
    found = [error for error in errors.values() if error not in (ErrorCode.NONE, _NOT_ATTEMPTED)]
    if found and context.error == ErrorName.NONE:
        context.error = found[0].name
    # As in Kafka, what is named twice has two results.
    topics = [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, errors[topic.name, index])
                async for index in context.slices.paced(topic.partitions)
            ],
        )
        async for topic in context.slices.paced(transaction.topics)
    ]
    return AddPartitionsToTxnResult(transaction.transactional_id, topics)


async def _errors(context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> _Errors:
    slices, services = context.slices, context.services
    named = {
        (topic.name, index): None
        async for topic in slices.paced(transaction.topics)
        async for index in slices.paced(topic.partitions)
    }
    deadline = context.journal_deadline()
    is_confirmed = await services.topics.confirm_partitions_absent(named, deadline, slices)
    found = [(name, services.topics.partition(*name)) async for name in slices.paced(named)]
    missing = {name for name, log in found if log is None}
    if missing:
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_confirmed else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return {name: absent if name in missing else _NOT_ATTEMPTED for name in named}
    partitions = [TopicPartition(log.topic_id, log.index) for _, log in found if log is not None]
    adding = _adding(transaction, partitions)
    if transaction.verify_only:
        return await _verified(context, adding, list(named), deadline)
    return dict.fromkeys(named, _code(context, await services.transactions.add(adding, deadline)))


async def _verified(
    context: RequestContext, adding: AddToTransaction, named: Sequence[_Named], deadline: float
) -> _Errors:
    """What of these is in the transaction already. More than a transaction may have is not."""
    lacking = await context.services.transactions.lacking(adding, deadline)
    if isinstance(lacking, Refused):
        return dict.fromkeys(named, _code(context, lacking))
    errors = dict.fromkeys(named, ErrorCode.TRANSACTION_ABORTABLE)
    for name, partition in zip(named, adding.partitions, strict=False):
        if partition not in lacking:
            errors[name] = ErrorCode.NONE
    return errors


def _code(context: RequestContext, refused: Refused | None) -> ErrorCode:
    if refused is None:
        return ErrorCode.NONE
    return ERROR_CODES[error_in_version(refused.error, context.header.api_version, FIRST_VERSION_WITH_FENCED)]
