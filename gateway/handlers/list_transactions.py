"""ListTransactions (66), v0-2.

KIP-664: the transactional ids that are remembered, with their states.

v1: DurationFilter (KIP-994). v2: TransactionalIdPattern (KIP-1152), a regular expression of RE2.
"""

from collections.abc import Sequence

from gateway.regex import InvalidPattern, Pattern
from gateway.requests.context import RequestContext
from gateway.transactions.describe import STATES, TransactionFilter, select
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ledger.transactions.state import Transaction, Transactions


async def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """An empty filter lets everything pass. Names of states that there are not let nothing pass, and are
    returned."""
    refused = await context.services.topics.barrier(context.journal_deadline())
    if refused is not None:
        return _refused(context, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        found = await _found(context, request)
    except InvalidPattern:
        return _refused(context, ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [state for state in dict.fromkeys(request.state_filters) if state not in STATES]
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(each.transactional_id, each.producer_id, each.status)
            async for each in context.slices.paced(found)
        ],
    )


async def _found(context: RequestContext, request: ListTransactionsRequest) -> Sequence[Transaction]:
    """Raises InvalidPattern."""
    services, slices = context.services, context.slices
    pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    wanted = TransactionFilter(
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        request.duration_filter,
        pattern,
    )
    known = slices.keep(list(services.shard.state.part(Transactions).by_id.values()))
    found, long = await slices.drive(select(known, wanted, services.shard.now_ms()))
    if pattern is None or not long:
        return found
    slices.leave()
    return found + await services.transactions.long_matches.matching(pattern, long)


def _refused(context: RequestContext, error: ErrorCode) -> ListTransactionsResponse:
    context.error = error.name
    return ListTransactionsResponse(error_code=error)
