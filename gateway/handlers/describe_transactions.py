"""DescribeTransactions (65), v0.

KIP-664: the state of transactional ids, and what their open transactions have touched. Committed offsets are
not in a topic here, so the groups of a transaction are not among its partitions.
"""

from gateway.requests.context import RequestContext
from gateway.requests.response_size import ResponseSize, ResponseTooLarge
from gateway.transactions.describe import describe
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


async def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    refused = await context.services.topics.barrier(context.journal_deadline())
    size, slices, states = context.response_size(), context.slices, list[TransactionState]()
    async for name in slices.paced(request.transactional_ids):
        if refused is not None:
            states.append(_refused(context, name, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            continue
        states.append(_describe(context, name, size))
        slices.is_due(sum(len(topic.partitions) for topic in states[-1].topics))
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(context: RequestContext, name: str, size: ResponseSize) -> TransactionState:
    if not name:
        return _refused(context, name, ErrorCode.INVALID_REQUEST)
    found = describe(context.services.shard.state, name)
    if found is None:
        return _refused(context, name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    transaction, partitions = found
    try:
        size.take(1 + len(partitions), sum(map(len, partitions.values())) * 4 + len(name))
    except ResponseTooLarge:
        return _refused(context, name, ErrorCode.INVALID_REQUEST)
    return TransactionState(
        transactional_id=name,
        transaction_state=transaction.status,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[TopicData(topic, indexes) for topic, indexes in partitions.items()],
    )


def _refused(context: RequestContext, name: str, error: ErrorCode) -> TransactionState:
    context.error = error.name
    return TransactionState(error, name)
