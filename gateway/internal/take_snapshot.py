"""TakeSnapshot (20009), v0.

Put a snapshot of the ledger into its blobs, with everything that was acknowledged before the request. If the
newest snapshot is of the last entry already, that one is the result. REQUEST_TIMED_OUT: one may be written
nevertheless, and the same request is sent again.
"""

import asyncio
from typing import Final

from gateway.internal.shard_access import NO_ANSWER, ShardAccess
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.take_snapshot import TakeSnapshotRequest, TakeSnapshotResponse
from ledger.errors import ErrorName, StoreError
from ledger.requests import Refused

MAX_PLACE: Final = 1_000
MAX_HOLD_MS: Final = 10 * 366 * 24 * 3_600_000


async def handle(
    access: ShardAccess, context: RequestContext, request: TakeSnapshotRequest
) -> TakeSnapshotResponse:
    if len(request.place) > MAX_PLACE or not 0 <= request.hold_ms <= MAX_HOLD_MS:
        return _refused(Refused(ErrorName.INVALID_REQUEST, "a place or a hold that is too long"))
    deadline = context.deadline(request.timeout_ms)
    refused = await access.confirm(deadline)
    if refused is not None:
        return _refused(refused)
    assert access.snapshots is not None
    try:
        async with asyncio.timeout_at(deadline):
            taken = await access.snapshots.take(request.place, request.hold_ms)
    except TimeoutError:
        return _refused(NO_ANSWER)
    except StoreError as error:
        return _refused(Refused(ErrorName.KAFKA_STORAGE_ERROR, str(error)))
    return TakeSnapshotResponse(
        key=taken.key,
        cluster_id=taken.cluster_id,
        entries=taken.entries,
        entry_time_ms=taken.entry_time_ms,
        topics=taken.topics,
        hold=taken.hold,
        held_until_ms=taken.held_until_ms,
    )


def _refused(refused: Refused) -> TakeSnapshotResponse:
    return TakeSnapshotResponse(error_code=ERROR_CODES[refused.error], error_message=refused.message or None)
