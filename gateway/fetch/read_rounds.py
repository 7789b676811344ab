"""The reads of a fetch: rounds of one call of the segment store each, within the request's budgets (KIP-74)
and a share of the budget for all fetches.

Only records that were read are in the response. Where they could not be read the response has an error, never
an empty success.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from gateway.fetch.operation import FetchOperation
from gateway.fetch.planning import MissingBytes, PartitionFetch, planned_bytes, share_out
from gateway.fetch.reader import MissingObject, ReadRequest
from gateway.fetch.turns import Turn
from gateway.telemetry.logs import QuietLog
from gateway.wire.errors import ErrorCode
from ledger.errors import StoreError

quiet = QuietLog()
"""While a store is out of reach every fetch fails."""

FETCH_BATCHES: Final = 16_384
"""Batches that one fetch takes, about. Each costs some 15 us, and half a kilobyte that no budget counts: a
response of the shortest batches would otherwise take ten seconds and 400 MB."""
MAX_STALE_PLANS: Final = 3
"""How often a fetch is planned again because the store did not have what its plan named."""


async def read(operation: FetchOperation) -> bool:
    """Read what the budgets allow. False: the plan was stale, and all partitions must be planned again."""
    missing = share_out(operation.reportable, operation.max_bytes).missing
    if not missing:
        return True
    budget, round_bytes = operation.resources.budget, operation.resources.options.round_bytes
    planned = min(planned_bytes(missing), round_bytes)
    operation.share = budget.acquire_now(planned, operation.owner)
    if operation.share is None:
        if planned > budget.fair_bytes:
            # Others wait too: a smaller response now is better than a large one after many others.
            operation.max_bytes = min(operation.max_bytes, budget.fair_bytes)
            missing = share_out(operation.reportable, operation.max_bytes).missing
            planned = min(planned_bytes(missing), round_bytes)
        if not await _wait_for_share(operation, planned):
            return True
    if await _read_rounds(operation, missing):
        return True
    operation.release_share()
    return False


async def _wait_for_share(operation: FetchOperation, size: int) -> bool:
    """False: there is none in time, and the response has no records."""
    operation.has_waited = True
    resources = operation.resources
    latest = asyncio.get_running_loop().time() + resources.options.ledger_wait_s
    try:
        operation.share = await resources.budget.acquire(
            size, max(operation.deadline, latest), operation.owner
        )
    except TimeoutError:
        operation.is_over = True
        for fetched in operation.reportable:
            fetched.batches = 0
        return False
    return True


async def _read_rounds(operation: FetchOperation, missing: Sequence[MissingBytes]) -> bool:
    turn, is_due = operation.begin_turn(FETCH_BATCHES), False
    while missing:
        missing, left = await _not_written(operation, missing, turn, is_due)
        is_read = missing and (is_due or not turn.is_spent)
        stale = await _read_round(operation, missing, left, turn) if is_read else []
        if stale and operation.stale_plans < MAX_STALE_PLANS:
            operation.stale_plans += 1
            await operation.barrier()
            return False
        for fetched, reason in stale:
            _fail(operation, fetched, "fetch.object_missing", reason, ErrorCode.KAFKA_STORAGE_ERROR)
        shares = share_out(operation.reportable, operation.max_bytes)
        missing = shares.missing
        if not missing:
            operation.is_over |= shares.out_of_budget or turn.is_spent
        elif turn.is_spent or not _holds_enough(operation, missing):
            missing = _cut_short(operation, missing)
            is_due = True
            if missing and not await _wait_for_share(operation, planned_bytes(missing)):
                return True
    return True


async def _not_written(
    operation: FetchOperation, missing: Sequence[MissingBytes], turn: Turn, is_due: bool
) -> tuple[list[MissingBytes], int]:
    """Take at once what was written here lately, unless the fetch has batches enough and none is due. Returns
    what has to be read, and how many bytes more this round may hold."""
    reader, left = operation.resources.reader, operation.resources.options.round_bytes
    unread = []
    for part in missing:
        stream, size = part.stream, min(part.size, part.stream.available)
        before = len(stream.batches)
        is_wanted = size <= left and (is_due or not turn.is_spent)
        if not is_wanted or not reader.take_written(stream, size):
            unread.append(part)
            continue
        left -= size
        turn.is_due(size)
        if turn.takes(len(stream.batches) - before):
            await turn.next()
    return unread, left


def _holds_enough(operation: FetchOperation, missing: Sequence[MissingBytes]) -> bool:
    """Whether the share of the budget covers the bytes that were read and that are still to be read, or can
    be made to at once."""
    share = operation.share
    if share is None:
        return False
    streams = [fetched.stream for fetched in operation.reportable if fetched.stream is not None]
    held = sum([len(batch.data) for stream in streams for batch in stream.batches])
    return share.grow(min(held + planned_bytes(missing), operation.resources.budget.max_bytes))


def _cut_short(operation: FetchOperation, missing: Sequence[MissingBytes]) -> list[MissingBytes]:
    """More must be read than was planned, and the budget does not have it: serve what has been read. Where
    that is not even the first batch, which must be served whatever its size, drop all else; the share is
    released, and the caller waits for one for this batch."""
    reportable = operation.reportable
    first = missing[0]
    is_due = not any(fetched.batches for fetched in reportable[: reportable.index(first.fetched) + 1])
    for part in missing[1:] if is_due else missing:
        part.stream.stop()
    operation.is_over = True
    if not is_due:
        share_out(reportable, operation.max_bytes)
        return []
    operation.release_share()
    for fetched in reportable:
        if fetched is not first.fetched:
            fetched.stream = None
    return [first]


async def _read_round(
    operation: FetchOperation, missing: Sequence[MissingBytes], max_bytes: int, turn: Turn
) -> list[tuple[PartitionFetch, str]]:
    """One read of the store for all partitions, of about `max_bytes`, which may be 0. Returns those of which
    the store does not have what was planned, with the reason."""
    reads = [ReadRequest(part.stream, part.size) for part in missing]
    operation.has_waited = True
    resources = operation.resources
    latest = asyncio.get_running_loop().time() + resources.options.ledger_wait_s
    try:
        failures = await resources.reader.read(reads, max_bytes, max(operation.deadline, latest), turn)
    except StoreError as error:
        failures = [error] * len(missing)
    stale: list[tuple[PartitionFetch, str]] = []
    unread: list[StoreError] = []
    for part, failure in zip(missing, failures, strict=True):
        if isinstance(failure, MissingObject):
            stale.append((part.fetched, str(failure)))
        elif isinstance(failure, StoreError):
            unread.append(failure)
            _stop_or_fail(part.fetched, ErrorCode.KAFKA_STORAGE_ERROR)
        elif failure is not None:
            # Clients repeat a storage error in silence; this one they report to the application.
            _fail(operation, part.fetched, "fetch.batch_damaged", str(failure), ErrorCode.CORRUPT_MESSAGE)
    if unread:
        quiet.error("fetch.storage_failed", partitions=len(unread), error=str(unread[0]))
    return stale


def _fail(
    operation: FetchOperation, fetched: PartitionFetch, event: str, reason: str, error: ErrorCode
) -> None:
    """Records that were acknowledged cannot be read. The batches before them are served; the next fetch gets
    the error."""
    partition, request = fetched.partition, fetched.request
    operation.resources.reader.alarm(
        event, topic=partition.name, partition=request.index, offset=request.fetch_offset, reason=reason
    )
    _stop_or_fail(fetched, error)


def _stop_or_fail(fetched: PartitionFetch, error: ErrorCode) -> None:
    if fetched.stream is not None and fetched.stream.batches:
        fetched.stream.stop()
    else:
        fetched.fail(error)
