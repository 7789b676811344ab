"""SettledLedger (20006), v0.

Name the newest settled ledger of a partition, or, with a null key, find out which one it is. What may be
named, and what the errors mean, says `ledger.settled.requests.NameSettled`; REQUEST_TIMED_OUT: the outcome is
unknown, and the same request is sent again. That there is none is said after a barrier.
"""

from typing import Final

from gateway.internal.shard_access import ShardAccess
from gateway.requests.audit import audited
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.settled_ledger import SettledLedgerRequest, SettledLedgerResponse
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.settled.requests import Named, NameSettled, SettledFiles
from ledger.settled.state import SettledLedger, SettledLedgers
from ledger.types import TopicId

MAX_KEY_BYTES: Final = 200


async def handle(
    access: ShardAccess, context: RequestContext, request: SettledLedgerRequest
) -> SettledLedgerResponse:
    deadline = context.deadline(request.timeout_ms)
    if request.object_key is None:
        if isinstance(_newest(access, request), Refused | None):
            return _response(access, request, await access.confirm(deadline))
        return _response(access, request, None)
    if not request.object_key.isascii() or len(request.object_key) > MAX_KEY_BYTES:
        wrong = Refused(ErrorName.INVALID_REQUEST, "an object key that no settled ledger has")
        return _response(access, request, wrong)
    sizes = request.log_size, request.index_size, request.meta_size
    naming = NameSettled(
        request.job_id,
        request.attempt,
        TopicId(request.topic_id),
        request.partition_index,
        SettledFiles(request.object_key, *sizes),
        request.entry,
        request.high_watermark,
        request.layout_version,
    )
    result = await audited(
        context,
        access.submit(naming, deadline),
        "settled.named",
        job=request.job_id.hex(),
        topic_id=request.topic_id.hex(),
        partition=request.partition_index,
        object=request.object_key,
    )
    if isinstance(result, Refused):
        return _response(access, request, result)
    assert isinstance(result, Named), result
    response = _response(access, request, None)
    response.is_duplicate = result.duplicate
    return response


def _newest(access: ShardAccess, request: SettledLedgerRequest) -> Refused | SettledLedger | None:
    log = access.partition(request.topic_id, request.partition_index)
    return log if isinstance(log, Refused) else access.shard.state.part(SettledLedgers).get(log.number)


def _response(
    access: ShardAccess, request: SettledLedgerRequest, refused: Refused | None
) -> SettledLedgerResponse:
    log = access.partition(request.topic_id, request.partition_index)
    newest = _newest(access, request)
    error = refused or (newest if isinstance(newest, Refused) else None)
    response = SettledLedgerResponse()
    if error is not None:
        response.error_code, response.error_message = ERROR_CODES[error.error], error.message or None
    if isinstance(newest, SettledLedger):
        response.object_key = access.shard.state.objects.locator(newest.object_number)
        response.log_size, response.index_size, response.meta_size = newest[1:4]
        response.entry, response.high_watermark = newest.entry, newest.high_watermark
        response.layout_version = newest.layout_version
    if not isinstance(log, Refused):
        response.log_start_offset = log.log_start
    return response
