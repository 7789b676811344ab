"""The wait of a fetch in purgatory, for enough bytes or for news of its partitions.

A fetch that is processed in slices enters the purgatory first, and checks then whether a partition has moved
since it was planned: so no move between the two is missed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from gateway.fetch.operation import CHUNK_PARTITIONS, FetchOperation
from gateway.fetch.planning import PartitionFetch, plan, readable_bytes
from gateway.fetch.purgatory import NEWS_BYTES, ParkedFetch
from gateway.scheduling.slices import Slices
from gateway.wire.errors import ErrorCode
from ledger.partitions.state import PartitionLog


async def park(operation: FetchOperation) -> bool:
    """Wait for enough bytes or other news of the partitions. False: the wait is over for good."""
    is_ready = None
    if operation.min_bytes - readable_bytes(operation.reportable) > NEWS_BYTES:
        is_ready = _readiness(operation)
    for fetched in operation.reportable:
        fetched.stream = None
    if operation.sliced is not None:
        return await _park_in_slices(operation, ParkedFetch((), is_ready), operation.sliced.slices)
    if operation.has_waited and _has_moved(operation, operation.partitions):
        return True
    logs = [fetched.log for fetched in operation.partitions if fetched.log is not None]
    if operation.memory is None and operation.session is None:
        return await operation.resources.purgatory.park(ParkedFetch(logs, is_ready), operation.deadline)
    return await _wait(operation, operation.resources.purgatory.park, ParkedFetch(logs, is_ready))


async def _park_in_slices(operation: FetchOperation, parked: ParkedFetch, slices: Slices) -> bool:
    purgatory, entered = operation.resources.purgatory, list[list[PartitionLog]]()
    starts = range(0, len(operation.partitions), CHUNK_PARTITIONS)
    try:
        for start in starts:
            chunk = operation.partitions[start : start + CHUNK_PARTITIONS]
            logs = [fetched.log for fetched in chunk if fetched.log is not None]
            entered.append(logs)
            purgatory.enter(parked, logs)
            if slices.is_due(len(chunk)):
                await slices.next_slice()
        for start in starts:
            if _has_moved(operation, operation.partitions[start : start + CHUNK_PARTITIONS]):
                return True
            if slices.is_due(CHUNK_PARTITIONS // 4):
                await slices.next_slice()
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


def _has_time(operation: FetchOperation) -> bool:
    return asyncio.get_running_loop().time() < operation.deadline


def _has_moved(operation: FetchOperation, partitions: Sequence[PartitionFetch]) -> bool:
    """Whether one of these moved after it was planned, of which the purgatory will not notify again, and
    there is time to plan it again."""
    return any(fetched.has_moved for fetched in partitions if fetched.error is ErrorCode.NONE) and _has_time(
        operation
    )


def _readiness(operation: FetchOperation) -> Callable[[Sequence[PartitionLog]], bool]:
    """What plans the partitions that moved, and says whether there are enough bytes now."""
    resources = operation.resources
    available_of: dict[int, int] = {}
    waiting: dict[int, list[PartitionFetch]] = {}
    for fetched in operation.partitions:
        if fetched.log is not None:
            number = fetched.log.number
            waiting.setdefault(number, []).append(fetched)
            available_of[number] = available_of.get(number, 0) + fetched.available
    total = sum(available_of.values())

    def is_ready(moved: Sequence[PartitionLog]) -> bool:
        nonlocal total
        topics = resources.shard.state.topics
        for moved_log in moved:
            available = 0
            for fetched in waiting[moved_log.number]:
                plan(fetched, topics, operation.isolation, operation.max_bytes, resources.offset_index)
                available += fetched.available
                if fetched.error is not ErrorCode.NONE or fetched.log is not moved_log:
                    # Deleted, or created again under its name: the purgatory knows nothing of the new one.
                    return True
                fetched.stream = None
            total += available - available_of[moved_log.number]
            available_of[moved_log.number] = available
        return total >= operation.min_bytes

    return is_ready
