"""EndTxn (26), v0-5.

KIP-98: commits or aborts a transaction. Its markers, and the offsets that are committed with it, are there
for all readers before the response is.

v1: throttled after the response. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE (KIP-890). v5:
the producer goes on with the epoch of the response (KIP-890, transaction version 2).
"""

from functools import partial
from typing import Final

from gateway.completion import Cancellable, Completion
from gateway.requests.context import RequestContext
from gateway.requests.responding import Responding
from gateway.transactions.coordinator import error_in_version
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.end_txn import EndTxnRequest, EndTxnResponse
from ledger.requests import LedgerResult, Refused
from ledger.transactions.requests import EndTransaction, ProducerEpoch

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_EPOCHS: Final = 5


def start(context: RequestContext, request: EndTxnRequest, completion: Completion[object]) -> Cancellable:
    """Submits before this returns."""
    responding = Responding(completion, partial(_response, context))
    return context.services.transactions.start_end(
        _ending(context, request), context.journal_deadline(), responding
    )


async def wait(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    ending = _ending(context, request)
    return _response(context, await context.services.transactions.end(ending, context.journal_deadline()))


def _ending(context: RequestContext, request: EndTxnRequest) -> EndTransaction:
    return EndTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        bumps=context.header.api_version >= FIRST_VERSION_WITH_EPOCHS,
    )


def _response(context: RequestContext, ended: LedgerResult) -> EndTxnResponse:
    if isinstance(ended, Refused):
        error = error_in_version(ended.error, context.header.api_version, FIRST_VERSION_WITH_FENCED)
        context.error = error
        return EndTxnResponse(error_code=ERROR_CODES[error])
    assert isinstance(ended, ProducerEpoch), ended
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)
