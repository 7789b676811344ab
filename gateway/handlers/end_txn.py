"""EndTxn (26), v0-5.

KIP-98: commits or aborts a transaction. Its markers, and the offsets that are committed with it, are there
for all readers before the response is.

v1: throttled after the response. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE (KIP-890). v5:
the producer goes on with the epoch of the response (KIP-890, transaction version 2).
"""

from typing import Final

from gateway.requests.context import RequestContext
from gateway.transactions.coordinator import error_in_version
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.end_txn import EndTxnRequest, EndTxnResponse
from ledger.requests import Refused
from ledger.transactions.requests import EndTransaction

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_EPOCHS: Final = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    version = context.header.api_version
    ending = EndTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        bumps=version >= FIRST_VERSION_WITH_EPOCHS,
    )
    ended = await context.services.transactions.end(ending, context.journal_deadline())
    if isinstance(ended, Refused):
        error = error_in_version(ended.error, version, FIRST_VERSION_WITH_FENCED)
        context.error = error
        return EndTxnResponse(error_code=ERROR_CODES[error])
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)
