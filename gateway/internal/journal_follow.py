"""JournalFollow (20001), v0.

The entries of the journal as they are stored, from a number on. Where there is none yet the request waits for
the next one. A reader that is below `start` gets no entries: it loads a snapshot. One that is beyond the end
reads another journal than it thinks: OFFSET_OUT_OF_RANGE.
"""

import asyncio
from typing import Final

from gateway.internal.shard_access import ShardAccess, within
from gateway.requests.context import RequestContext
from gateway.telemetry.parked import parked
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.journal_follow import (
    JournalFollowRequest,
    JournalFollowResponse,
    StoredEntry,
)
from ledger.errors import ErrorName, StoreDamaged
from ledger.requests import Refused

MAX_BYTES: Final = 1024 * 1024
"""A response has at most these, and one entry more."""


async def handle(
    access: ShardAccess, context: RequestContext, request: JournalFollowRequest
) -> JournalFollowResponse:
    refused = access.check_shard(request.shard)
    if refused is None and request.from_entry < 0:
        refused = Refused(ErrorName.INVALID_REQUEST, "entries are numbered from 0 on")
    if refused is not None:
        return _refusal(access, refused)
    first = request.from_entry
    if first >= access.shard.state.applied:
        deadline = context.deadline(request.timeout_ms)
        refused = await access.confirm(deadline)
        if refused is not None:
            return _refusal(access, refused)
        if first > access.shard.state.applied:
            return _refusal(access, Refused(ErrorName.OFFSET_OUT_OF_RANGE, "the journal is not that long"))
        wait_s = max(request.max_wait_ms, 0) / 1000
        with parked():
            now = asyncio.get_running_loop().time()
            await access.wait_for_entry(first, min(deadline, now + wait_s))
    size = min(max(request.max_bytes, 1), MAX_BYTES)
    found = await within(context, request.timeout_ms, _entries(access, first, size))
    if isinstance(found, Refused):
        return _refusal(access, found)
    assert isinstance(found, JournalFollowResponse)
    return found


async def _entries(access: ShardAccess, first: int, max_bytes: int) -> JournalFollowResponse:
    shard = access.shard
    if first >= shard.state.applied:
        return JournalFollowResponse(start=await shard.journal.start(), durable_end=shard.state.applied)
    async with access.reads:
        page = await shard.journal.read(first, max_bytes)
    # After the read: what was read below it need not have counted, and may have gaps.
    start = await shard.journal.start()
    # What is appended, and not yet proved to count, is not applied.
    end = shard.state.applied
    if start > first:
        return JournalFollowResponse(start=start, durable_end=end)
    if page.gap is not None or not page.entries:
        raise StoreDamaged(f"entry {page.gap or first} of the journal is missing: restore the metadata store")
    entries = [StoredEntry(stored.number, stored.data) for stored in page.entries if stored.number < end]
    return JournalFollowResponse(start=start, durable_end=end, entries=entries)


def _refusal(access: ShardAccess, refused: Refused) -> JournalFollowResponse:
    return JournalFollowResponse(
        error_code=ERROR_CODES[refused.error],
        error_message=refused.message or None,
        durable_end=access.shard.state.applied,
    )
