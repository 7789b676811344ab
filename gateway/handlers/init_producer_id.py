"""InitProducerId (22), v0-5.

KIP-98, for idempotent producers.

v1: throttled after the response. v2: flexible. v3: ProducerId and ProducerEpoch (KIP-360). v4:
PRODUCER_FENCED. v5: TRANSACTION_ABORTABLE (KIP-890).
"""

from gateway.requests.context import RequestContext
from gateway.requests.transactional_ids import refuse_transactions
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ledger.errors import StoreError

NO_ID = -1
"""No producer id, no epoch."""


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A new producer id with epoch 0. As in Kafka, a producer without a transactional id gets a new one each
    time, whatever id and epoch it names; to name only one of the two is an error (KIP-360)."""
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_ID):
        return _refused(context, ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        return _refused(context, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        # FindCoordinator returns no coordinator, so few clients send this.
        return _refused(context, refuse_transactions(context, request.transactional_id))
    timeout_s = context.services.settings.ledger.commit_timeout_ms / 1000
    try:
        producer_id = await context.services.producer_ids.take(context.received_at + timeout_s)
    except (StoreError, TimeoutError):
        return _refused(context, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(context: RequestContext, error: ErrorCode) -> InitProducerIdResponse:
    context.error = error.name
    return InitProducerIdResponse(error_code=error, producer_epoch=NO_ID)
