"""AddOffsetsToTxn (25), v0-4.

KIP-98: offsets of this group are going to be committed with the transaction, which begins with it unless it
is open.

v1: throttled after the response. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE (KIP-890).
"""

from typing import Final

from gateway.requests.context import RequestContext
from gateway.transactions.coordinator import error_in_version
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ledger.transactions.requests import AddToTransaction

FIRST_VERSION_WITH_FENCED: Final = 2


async def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    adding = AddToTransaction(
        request.transactional_id, request.producer_id, request.producer_epoch, groups=[request.group_id]
    )
    refused = await context.services.transactions.add(adding, context.journal_deadline())
    if refused is None:
        return AddOffsetsToTxnResponse()
    error = error_in_version(refused.error, context.header.api_version, FIRST_VERSION_WITH_FENCED)
    context.error = error
    return AddOffsetsToTxnResponse(error_code=ERROR_CODES[error])
