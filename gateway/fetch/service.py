"""The fetch service: one request is one long poll.

`FetchSessions` says which partitions a request is about. `run_fetch` plans them against the ledger's state,
and either reads what is there or parks until there is enough.

A fetch of many partitions is processed in slices (`gateway/fetch/operation.py`). The memory for its
partitions, which it holds also while it waits, has a budget of its own
(`gateway/fetch/partition_memory.py`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from gateway.coordination.ledger import Ledger
from gateway.fetch.budget import NO_OWNER, FetchBudget
from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.operation import ALONE, CHUNK_PARTITIONS, FetchOperation, FetchOptions, Sliced
from gateway.fetch.parking import park
from gateway.fetch.partition_memory import PartitionMemory
from gateway.fetch.planning import PartitionFetch
from gateway.fetch.purgatory import Purgatory
from gateway.fetch.read_rounds import read
from gateway.fetch.reader import RunReader
from gateway.fetch.sessions import (
    MAX_SESSION_PARTITIONS,
    FetchContext,
    FetchKind,
    FetchSessions,
    PartitionKey,
    SessionPartition,
    partition_key,
)
from gateway.scheduling.slices import Owner, Slices
from gateway.telemetry.traffic import Traffic
from gateway.wire.messages.absent import AbsentPartitions
from gateway.wire.messages.fetch import FetchRequest, FetchResponse
from ledger.errors import StoreError
from ledger.partitions.state import PartitionLog
from ledger.types import Buffer

log = structlog.get_logger(__name__)

PARTITION_BYTES: Final = 700
"""Memory that a partition of a fetch under way takes, with the state that its session has of it."""
CROWDED_MS: Final = 1_000
"""How long a client is throttled whose fetch got no memory for its partitions."""


def _unthrottled(record_bytes: int) -> int:
    return 0


class FetchResult(NamedTuple):
    """A response, and what frees the share of the budget that it takes until it is sent."""

    response: FetchResponse
    on_sent: Callable[[], None] | None = None


class FetchService:
    """Answers fetches. Followers do not exist here: a fetch with a broker's replica id is refused."""

    def __init__(
        self,
        shard: Ledger,
        reader: RunReader,
        sessions: FetchSessions,
        options: FetchOptions,
        clock: Callable[[], int],
    ) -> None:
        self.shard = shard
        self.reader = reader
        self.sessions = sessions
        self.options = options
        self.clock = clock
        self.budget = FetchBudget(options.in_flight_bytes)
        self.partition_memory = PartitionMemory(options.partitions_in_memory * PARTITION_BYTES)
        self.purgatory = Purgatory()
        self.offset_index = SparseOffsetIndex()
        self.traffic = Traffic()
        self._unsubscribe = shard.subscribe(self._touched)

    async def fetch(  # noqa: PLR0913 - all that a request brings
        self,
        version: int,
        request: FetchRequest,
        principal: str,
        received_at: float,
        throttle_ms: Callable[[int], int] = _unthrottled,
        owner: Owner = NO_OWNER,
        sliced: Sliced = ALONE,
        absent: AbsentPartitions | None = None,
    ) -> FetchResult:
        """The response to one Fetch. `received_at` is loop time; max_wait_ms counts from there. `throttle_ms`
        gets the bytes of records, and says for how long the client is throttled: if above 0, the response is
        empty. `owner` is the connection that the share of the budget belongs to. `absent` are the partitions
        that an `UnknownPartitionFilter` took out of the request: the response reports them."""
        named = sum([len(topic.partitions) for topic in request.topics])
        is_large = named > MAX_SESSION_PARTITIONS or absent is not None
        if is_large:
            context = self.sessions.begin_large(version, request, principal)
        else:
            context = self.sessions.begin(version, request, principal, self.clock())
        if context.kind is FetchKind.REFUSED:
            return FetchResult(self.sessions.finish(context, (), self.clock()))
        count = max(named, len(context.partitions))
        if count <= CHUNK_PARTITIONS and not is_large:
            operation = FetchOperation(self, request, context, received_at, owner, sliced)
            return await self._fetch(operation, context, throttle_ms)
        deadline = asyncio.get_running_loop().time() + self.options.ledger_wait_s
        try:
            memory = await self.partition_memory.acquire(count * PARTITION_BYTES, deadline, owner)
        except TimeoutError:
            return FetchResult(self.sessions.throttle(context, CROWDED_MS))
        try:
            if is_large:
                requested = await _requested_in_slices(request, context.uses_topic_ids, sliced.slices)
                context = replace(context, partitions=requested)
            operation = FetchOperation(self, request, context, received_at, owner, sliced)
            operation.memory = memory
            result = await self._fetch(operation, context, throttle_ms)
            if absent is not None and not result.response.throttle_time_ms:
                result.response.absent = absent
            return result
        finally:
            memory.release()

    async def is_newest(self) -> bool:
        """Whether the state is confirmed to be the newest, so that a response may say what does not exist."""
        deadline = asyncio.get_running_loop().time() + self.options.ledger_wait_s
        try:
            await self.shard.barrier(deadline)
        except (StoreError, TimeoutError) as error:
            log.warning("fetch.barrier_failed", error=str(error))
            return False
        return True

    async def _fetch(
        self,
        operation: FetchOperation,
        context: FetchContext,
        throttle_ms: Callable[[int], int],
    ) -> FetchResult:
        try:
            partitions = await run_fetch(operation)
            responses, record_bytes = await operation.responses(partitions)
            throttled = throttle_ms(record_bytes)
            if throttled:
                operation.release_share()
                return FetchResult(self.sessions.throttle(context, throttled))
            response = self.sessions.finish(context, responses, self.clock())
            for served in operation.served:
                self.traffic.fetched(*served)
            if response.session_id:
                self._mark_quiet(context, response.session_id, partitions)
        except BaseException:
            operation.release_share()
            raise
        # Bytes that were read but are not sent are free now; the rest when the client has the response.
        share = operation.share
        if share is not None:
            if share.size > record_bytes:
                sent = chain.from_iterable([part.records for _, part in responses if part.records])
                share.release(keep=_pinned(sent))
            if share.size:
                # A method of the share: one of the operation would keep all that it has read in memory.
                return FetchResult(response, share.release)
        return FetchResult(response)

    def close(self) -> None:
        """End all waits: each fetch returns the records that there are."""
        if not self.purgatory.is_closed:
            self._unsubscribe()
            self.purgatory.close()
            self.partition_memory.close()

    def _touched(self, logs: Sequence[PartitionLog]) -> None:
        self.sessions.touched(logs)
        self.purgatory.touched(logs)

    def _mark_quiet(
        self, context: FetchContext, session_id: int, partitions: Sequence[PartitionFetch]
    ) -> None:
        """Partitions that were reported to their end are not planned again until they move."""
        at_end = [
            (fetched.partition, fetched.log.number)
            for fetched in partitions
            if fetched.is_at_end and fetched.log is not None and not fetched.has_moved
        ]
        self.sessions.mark_quiet(context, session_id, at_end)


async def run_fetch(operation: FetchOperation) -> Sequence[PartitionFetch]:
    """What each partition gets, in the order of the response."""
    if operation.requested and operation.sliced is not None:
        await operation.take_requested(operation.sliced.slices)
    while True:
        if operation.session is not None and operation.session.moved:
            operation.take_moved(operation.session)
        if await operation.plan() or operation.absent_count is None:
            await operation.confirm()
        if not operation.must_wait():
            if not await read(operation):
                continue
            if not operation.must_wait():
                has_absent = operation.absent_count or operation.has_confirmed
                return operation.absent_last() if has_absent else operation.partitions
            operation.release_share()
        operation.is_over = not await park(operation)


async def _requested_in_slices(request: FetchRequest, by_id: bool, slices: Slices) -> list[SessionPartition]:
    """The partitions of a large request, as `FetchSessions.begin` gives those of a small one."""
    requested: dict[PartitionKey, SessionPartition] = {}
    for topic in request.topics:
        partitions = topic.partitions
        for start in range(0, len(partitions), CHUNK_PARTITIONS):
            for part in partitions[start : start + CHUNK_PARTITIONS]:
                partition = SessionPartition(topic.name, topic.topic_id, part)
                requested[partition_key(partition, by_id)] = partition
            if slices.is_due(min(len(partitions) - start, CHUNK_PARTITIONS)):
                await slices.next_slice()
        if slices.is_due():
            await slices.next_slice()
    slices.leave()
    return list(requested.values())


def _pinned(buffers: Iterable[Buffer]) -> int:
    """Bytes in memory that these buffers keep there: a view keeps all that it was cut from."""
    wholes = [buffer.obj if isinstance(buffer, memoryview) else buffer for buffer in buffers]
    return sum({id(whole): memoryview(whole).nbytes for whole in wholes}.values())
