"""The wait of a fetch in purgatory, for enough bytes or for news of its partitions.

A fetch that is processed in slices enters the purgatory first, and checks then whether a partition has moved
since it was planned: so no move between the two is missed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from gateway.fetch.operation import CHUNK_PARTITIONS, FetchOperation
from gateway.fetch.planning import PartitionFetch, readable_bytes
from gateway.fetch.purgatory import NEWS_BYTES, ParkedFetch
from gateway.fetch.readiness import Readiness
from gateway.scheduling.slices import Slices
from gateway.wire.errors import ErrorCode
from ledger.partitions.state import PartitionLog

MOVED_UNITS: Final = 64
"""What it costs to look at a partition that has moved: it may have hundreds of runs."""


async def park(operation: FetchOperation) -> bool:
    """Wait for enough bytes or other news of the partitions. False: the wait is over for good."""
    if operation.sliced is None and operation.has_waited and _has_moved(operation, operation.partitions):
        operation.keeps_plans = not any(
            fetched.stream is not None and fetched.stream.batches for fetched in operation.reportable
        )
        return True
    readiness = None
    if operation.min_bytes - readable_bytes(operation.reportable) > NEWS_BYTES:
        readiness = Readiness(operation)
    if operation.sliced is not None:
        return await _park_in_slices(operation, readiness, operation.sliced.slices)
    parked = ParkedFetch(_let_go(operation.partitions, readiness), readiness)
    if operation.memory is None and operation.session is None:
        return await operation.resources.purgatory.park(parked, operation.deadline)
    return await _wait(operation, operation.resources.purgatory.park, parked)


def _let_go(partitions: Sequence[PartitionFetch], readiness: Readiness | None) -> list[PartitionLog]:
    """Keep nothing of what was planned to be read, but how much that is. Returns the logs to wait for."""
    if readiness is not None:
        readiness.add(partitions)
    for fetched in partitions:
        fetched.stream = None
    return [fetched.log for fetched in partitions if fetched.log is not None]


async def _park_in_slices(operation: FetchOperation, readiness: Readiness | None, slices: Slices) -> bool:
    purgatory, entered = operation.resources.purgatory, list[list[PartitionLog]]()
    parked = ParkedFetch((), readiness)
    starts = range(0, len(operation.partitions), CHUNK_PARTITIONS)
    try:
        for start in starts:
            logs = _let_go(operation.partitions[start : start + CHUNK_PARTITIONS], readiness)
            entered.append(logs)
            purgatory.enter(parked, logs)
            if slices.is_due(CHUNK_PARTITIONS):
                await slices.next_slice()
        for start in starts:
            if await _has_news(
                operation, operation.partitions[start : start + CHUNK_PARTITIONS], parked, slices
            ):
                return True
            if slices.is_due(CHUNK_PARTITIONS // 4):
                await slices.next_slice()
        if readiness is not None and readiness(()):
            # Partitions that moved meanwhile were counted before the others were added.
            return True
        slices.leave()
        is_news = await _wait(operation, purgatory.wait, parked)
        while entered:
            purgatory.leave(parked, entered.pop())
            if slices.is_due(CHUNK_PARTITIONS // 2):
                await slices.next_slice()
        return is_news
    finally:
        slices.leave()
        for logs in entered:
            purgatory.leave(parked, logs)


async def _wait(
    operation: FetchOperation,
    wait: Callable[[ParkedFetch, float], Coroutine[None, None, bool]],
    parked: ParkedFetch,
) -> bool:
    """As `wait`, and also for the quiet partitions of the session. A large fetch may be ended early, in
    favour of others that wait for memory (False)."""
    if operation.memory is None:
        return await _wait_for_any(operation, wait, parked)
    with operation.resources.partition_memory.parked(parked, operation.memory):
        return await _wait_for_any(operation, wait, parked)


async def _wait_for_any(
    operation: FetchOperation,
    wait: Callable[[ParkedFetch, float], Coroutine[None, None, bool]],
    parked: ParkedFetch,
) -> bool:
    session = operation.session
    if session is None or not (session.quiet or session.moved):
        return await wait(parked, operation.deadline)
    if session.moved and session.epoch == operation.session_epoch and _has_time(operation):
        return True
    # In the next iteration of the event loop, as in purgatory: by then the new batches are in the cache.
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon(parked.wake)

    session.on_moved = wake
    try:
        return await wait(parked, operation.deadline)
    finally:
        if session.on_moved is wake:
            session.on_moved = None


async def _has_news(
    operation: FetchOperation, partitions: Sequence[PartitionFetch], parked: ParkedFetch, slices: Slices
) -> bool:
    """Whether the fetch is woken already, or what moved before it had entered is enough. The rest keeps its
    plan: in a large fetch some partition moves during every plan of all of them."""
    for fetched in partitions:
        if parked.woken.done():
            return True
        log = fetched.log
        if log is not None and _is_to_be_planned(fetched) and _has_time(operation):
            if parked.is_ready is None or parked.is_ready([log]):
                return True
            if slices.is_due(MOVED_UNITS):
                await slices.next_slice()
    return False


def _has_time(operation: FetchOperation) -> bool:
    return asyncio.get_running_loop().time() < operation.deadline


def _has_moved(operation: FetchOperation, partitions: Sequence[PartitionFetch]) -> bool:
    """Whether one of these moved after it was planned, of which the purgatory will not notify again, and
    there is time to plan it again."""
    return any(map(_is_to_be_planned, partitions)) and _has_time(operation)


def _is_to_be_planned(fetched: PartitionFetch) -> bool:
    """Whether it has moved since it was planned. An error stays what it was."""
    return fetched.error is ErrorCode.NONE and fetched.has_moved
