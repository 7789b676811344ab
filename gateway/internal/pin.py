"""Pin (20004), v0.

Take the pin of a job, renew it, or release it. A pin that is not renewed for ten minutes is released by the
owner of the shard. A job whose `entry` is another one than before has lost its first pin, and begins again.
"""

from gateway.internal.shard_access import ShardAccess
from gateway.requests.audit import audited
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.pin import PinRequest, PinResponse
from gateway.wire.primitives import ZERO_UUID
from ledger.errors import ErrorName
from ledger.requests import LedgerResult, Refused
from ledger.swaps.requests import Pinned, ReleasePin, TakePin
from ledger.swaps.state import Pins


async def handle(access: ShardAccess, context: RequestContext, request: PinRequest) -> PinResponse:
    job, deadline = request.job_id, context.deadline(request.timeout_ms)
    if job == ZERO_UUID:
        return _response(Refused(ErrorName.INVALID_REQUEST, "a job needs an id of its own"))
    if request.release:
        releasing = access.submit(ReleasePin(job), deadline)
        return _response(await audited(context, releasing, "pin.released", job=job.hex()))
    if job in access.shard.state.part(Pins):
        # Else it could be found silent now, and released between this request and its result.
        access.pins.renew(job)
    elif (refused := await access.prepare(deadline)) is not None:
        return _response(refused)
    result = await access.submit(TakePin(job), deadline)
    if isinstance(result, Pinned):
        access.pins.renew(job)
    return _response(result)


def _response(result: LedgerResult) -> PinResponse:
    match result:
        case Refused(error=error, message=message):
            return PinResponse(error_code=ERROR_CODES[error], error_message=message or None)
        case Pinned(entry=entry, started_ms=started_ms):
            return PinResponse(entry=entry, started_ms=started_ms)
    return PinResponse()
