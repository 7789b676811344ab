"""InitProducerId (22), v0-5.

KIP-98: a producer id and an epoch, for idempotent producers and for those with a transactional id. The latter
fence the producer that had the id before, and abort its open transaction.

v1: throttled after the response. v2: flexible. v3: ProducerId and ProducerEpoch (KIP-360). v4:
PRODUCER_FENCED. v5: TRANSACTION_ABORTABLE (KIP-890).
"""

import asyncio
from typing import Final

from gateway.requests.audit import UNKNOWN_OUTCOME, audit
from gateway.requests.context import RequestContext
from gateway.requests.transactional_ids import refuse_transactions
from gateway.transactions.coordinator import error_in_version
from gateway.transactions.expiry import MAX_ID_SHOWN
from gateway.transactions.pending import RETRIABLE
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ledger.errors import StoreError
from ledger.requests import Refused
from ledger.transactions.requests import ProducerEpoch
from ledger.transactions.rules import Expected

NO_ID: Final = -1
"""No producer id, no epoch."""
FIRST_VERSION_WITH_FENCED: Final = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """To name only one of producer id and epoch is an error (KIP-360)."""
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_ID):
        return _refused(context, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return await _idempotent(context)
    if not context.services.transactions.is_served:
        return _refused(context, refuse_transactions(context, request.transactional_id))
    return await _transactional(context, request.transactional_id, request)


async def _idempotent(context: RequestContext) -> InitProducerIdResponse:
    """A new producer id with epoch 0. As in Kafka, a producer without a transactional id gets a new one each
    time, whatever id and epoch it names."""
    timeout_s = context.services.settings.ledger.commit_timeout_ms / 1000
    try:
        producer_id = await context.services.producer_ids.take(context.received_at + timeout_s)
    except (StoreError, TimeoutError):
        # As in Kafka. At COORDINATOR_NOT_AVAILABLE Java looks for the coordinator of the id that is null.
        return _refused(context, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _transactional(
    context: RequestContext, transactional_id: str, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    expected = None
    if request.producer_id != NO_ID:
        expected = Expected(request.producer_id, request.producer_epoch)
    begun = await _begun(context, transactional_id, request.transaction_timeout_ms, expected)
    if isinstance(begun, Refused):
        version = context.header.api_version
        return _refused(
            context, ERROR_CODES[error_in_version(begun.error, version, FIRST_VERSION_WITH_FENCED)]
        )
    return InitProducerIdResponse(producer_id=begun.producer_id, producer_epoch=begun.epoch)


async def _begun(
    context: RequestContext, transactional_id: str, timeout_ms: int, expected: Expected | None
) -> ProducerEpoch | Refused:
    """With an event if an open transaction was aborted, or one was open and the outcome is unknown."""
    transactions = context.services.transactions
    had_open = transactions.has_open(transactional_id)
    try:
        begun = await transactions.init(transactional_id, timeout_ms, expected, context.journal_deadline())
    except asyncio.CancelledError:
        if had_open:
            _audit(context, transactional_id, UNKNOWN_OUTCOME)
        raise
    if isinstance(begun, ProducerEpoch) and begun.aborted:
        _audit(context, transactional_id, None, producer_id=begun.producer_id, epoch=begun.epoch)
    elif isinstance(begun, Refused) and begun.error == RETRIABLE and had_open:
        _audit(context, transactional_id, UNKNOWN_OUTCOME)
    return begun


def _audit(
    context: RequestContext, transactional_id: str, refused: Refused | None, **producer: object
) -> None:
    shown = transactional_id[:MAX_ID_SHOWN]
    audit(context, "transactions.fenced", refused, transactional_id=shown, **producer)


def _refused(context: RequestContext, error: ErrorCode) -> InitProducerIdResponse:
    context.error = error.name
    return InitProducerIdResponse(error_code=error, producer_epoch=NO_ID)
