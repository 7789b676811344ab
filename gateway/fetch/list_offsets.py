"""ListOffsets: the earliest offset, the latest, and by time. Results are exact: a barrier applies all that
was durable when the request arrived.

| timestamp | since version | result                                                        |
|-----------|---------------|---------------------------------------------------------------|
| >= 0      | 1             | the first record of that time or later, with its timestamp     |
| -1        | 1             | high watermark, or last stable offset for read_committed       |
| -2        | 1             | log start offset                                               |
| -3        | 7             | the first record with the greatest timestamp (KIP-734)          |
| -4        | 8             | log start offset: there is no tier between (KIP-405)            |
| -5        | 9             | offset -1: no tiered storage, as Kafka answers without it       |
| -6        | 11            | offset -1: likewise (KIP-1023)                                  |

An offset that is not found is offset -1, timestamp -1 and leader epoch -1, without an error; one that is
found has leader epoch 0.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

import structlog

from gateway.coordination.ledger import Ledger
from gateway.fetch.budget import NO_OWNER, FetchBudget, Share
from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.planning import READ_COMMITTED, check_epoch
from gateway.fetch.reader import MissingObject, ReadRequest, RunReader
from gateway.fetch.stream import BatchStream, Damaged, StoredBatch
from gateway.fetch.timestamps import TimedOffset, TimeSearch
from gateway.scheduling.batch_opening import BatchOpener
from gateway.scheduling.slices import Owner, Slices, paced
from gateway.wire.errors import ErrorCode
from ledger.batch.header import LEADER_EPOCH
from ledger.errors import StoreError
from ledger.partitions.markers import is_marker
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.types import NO_TIMESTAMP

log = structlog.get_logger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
FIRST_VERSION_OF: Final[Mapping[int, int]] = MappingProxyType(
    {
        LATEST: 1,
        EARLIEST: 1,
        MAX_TIMESTAMP: 7,
        EARLIEST_LOCAL: 8,
        LATEST_TIERED: 9,
        EARLIEST_PENDING_UPLOAD: 11,
    }
)
NOT_FOUND: Final = -1
WINDOW_BYTES: Final = 1024 * 1024
STALE_PLANS: Final = 3
SEARCHES_AT_ONCE: Final = 16
"""Partitions of one request that are searched by time in parallel."""
SEARCH_BYTES: Final = 64 * 1024 * 1024
"""Stored bytes that all searches hold, granted to connections round-robin: a search holds a window while it
reads, then the batch that is decompressed."""
MAX_KNOWN: Final = 10_000
"""Decompressed batches whose latest timestamp is remembered."""


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """`timestamp` is Unix ms, or one of the negative values of the table above."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetResult:
    error: ErrorCode = ErrorCode.NONE
    timestamp: int = NOT_FOUND
    offset: int = NOT_FOUND
    leader_epoch: int = NOT_FOUND


@dataclass(frozen=True, slots=True)
class _Search:
    """What the searches of a request have in common."""

    isolation: int
    deadline: float
    owner: Owner


class ListOffsetsService:
    """Serves ListOffsets."""

    def __init__(
        self, shard: Ledger, reader: RunReader, opener: BatchOpener, max_decompressed_bytes: int
    ) -> None:
        self._shard = shard
        self._reader = reader
        self._opener = opener
        self.max_decompressed_bytes = max_decompressed_bytes
        self._offset_index = SparseOffsetIndex()
        self._budget = FetchBudget(SEARCH_BYTES)
        self._latest: OrderedDict[tuple[int, int], int] = OrderedDict()
        """By object number and position: the latest timestamp in batches that were decompressed in vain.
        Their headers have a later one, and would have them decompressed again."""

    async def list_offsets(
        self,
        version: int,
        queries: Sequence[OffsetQuery],
        isolation: int,
        deadline: float,
        slices: Slices | None = None,
        owner: Owner = NO_OWNER,
    ) -> list[OffsetResult]:
        """The results in the order of the queries. `deadline` is loop time: a search that is not over by then
        has REQUEST_TIMED_OUT. A request that may have very many queries has `slices`."""
        try:
            await self._shard.barrier(deadline)
        except TimeoutError:
            return [OffsetResult(ErrorCode.REQUEST_TIMED_OUT)] * len(queries)
        except StoreError as error:
            log.warning("list_offsets.barrier_failed", error=str(error))
            return [OffsetResult(ErrorCode.KAFKA_STORAGE_ERROR)] * len(queries)
        at_once = [self._at_once(version, query, isolation) async for query in paced(slices, queries)]
        searches = {i: queries[i] async for i, result in paced(slices, enumerate(at_once)) if result is None}
        if searches and slices is not None:
            # A search may last until the deadline, and has a budget of its own.
            slices.leave()
        search = _Search(isolation, deadline, owner)
        found = await self._search_all(list(searches.values()), search) if searches else []
        if not searches:
            return cast(list[OffsetResult], at_once)
        results = dict(zip(searches, found, strict=True))
        return [result if result is not None else results[i] for i, result in enumerate(at_once)]

    def _at_once(self, version: int, query: OffsetQuery, isolation: int) -> OffsetResult | None:
        """The result that the ledger has; None if batches must be read."""
        timestamp = query.timestamp
        if timestamp < 0 and version < FIRST_VERSION_OF.get(timestamp, version + 1):
            return OffsetResult(ErrorCode.UNSUPPORTED_VERSION)
        partition = self._find(query)
        if partition is None:
            return OffsetResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        epoch_error = check_epoch(query.current_leader_epoch)
        if epoch_error is not ErrorCode.NONE:
            return OffsetResult(epoch_error)
        match timestamp:
            case -1:
                return OffsetResult(offset=_end(partition, isolation), leader_epoch=LEADER_EPOCH)
            case -2 | -4:
                return OffsetResult(offset=partition.log_start, leader_epoch=LEADER_EPOCH)
            case -5 | -6:
                return OffsetResult()
        return None

    def _find(self, query: OffsetQuery) -> PartitionLog | None:
        topic = self._shard.state.topics.by_name.get(query.topic)
        if topic is None:
            return None
        index, made = query.partition, topic.partitions.made
        return made[index] or topic.partitions[index] if 0 <= index < len(made) else None

    async def _search_all(self, queries: Sequence[OffsetQuery], search: _Search) -> list[OffsetResult]:
        # A task for each search in parallel, not for each query: a request may have very many.
        results: list[OffsetResult] = [OffsetResult(ErrorCode.REQUEST_TIMED_OUT)] * len(queries)
        waiting = iter(range(len(queries)))

        async def work() -> None:
            for i in waiting:
                results[i] = await self._search(queries[i], search)

        try:
            async with asyncio.timeout_at(search.deadline), asyncio.TaskGroup() as tasks:
                for _ in range(min(SEARCHES_AT_ONCE, len(queries))):
                    tasks.create_task(work())
        except TimeoutError:
            log.warning("list_offsets.timed_out", questions=len(queries))
        return results

    async def _search(self, query: OffsetQuery, search: _Search) -> OffsetResult:
        reason = ""
        for _ in range(1 + STALE_PLANS):
            partition = self._find(query)
            if partition is None:
                return OffsetResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            try:
                found = await self._find_record(partition, query.timestamp, search)
            except MissingObject as error:
                reason = str(error)
                await self._refresh(search.deadline)
                continue
            except StoreError as error:
                log.error("list_offsets.storage_failed", error=str(error))
                return OffsetResult(ErrorCode.KAFKA_STORAGE_ERROR)
            except ValueError as error:
                # The batch is as it was produced, but its producer put no list of records into it.
                log.warning("list_offsets.records_unreadable", topic=query.topic, error=str(error))
                return OffsetResult(ErrorCode.CORRUPT_MESSAGE)
            except Damaged as error:
                self._alarm("list_offsets.batch_damaged", query, str(error))
                return OffsetResult(ErrorCode.CORRUPT_MESSAGE)
            if found is None or found.offset >= _end(partition, search.isolation):
                return OffsetResult()
            return OffsetResult(ErrorCode.NONE, found.timestamp, found.offset, LEADER_EPOCH)
        self._alarm("list_offsets.object_missing", query, reason)
        return OffsetResult(ErrorCode.KAFKA_STORAGE_ERROR)

    async def _refresh(self, deadline: float) -> None:
        try:
            await self._shard.barrier(deadline)
        except StoreError as error:
            log.warning("list_offsets.barrier_failed", error=str(error))

    def _alarm(self, event: str, query: OffsetQuery, reason: str) -> None:
        self._reader.alarm(event, topic=query.topic, partition=query.partition, reason=reason)

    async def _find_record(
        self, partition: PartitionLog, timestamp: int, search: _Search
    ) -> TimedOffset | None:
        if timestamp == MAX_TIMESTAMP:
            return await self._latest_record(partition, search)
        run = partition.find_time(timestamp)
        while run is not None:
            found = await self._first_in_run(partition, run, timestamp, partition.log_start, search)
            if found is not None:
                return found
            # Its late records are below the log start offset, or no record has the timestamp of its header.
            run = partition.find_time(timestamp, run.last + 1)
        return None

    async def _latest_record(self, partition: PartitionLog, search: _Search) -> TimedOffset | None:
        run = partition.find_max_time()
        if run is None:
            # Of records without a timestamp the first, as in Kafka.
            is_empty = partition.log_start == partition.high_watermark
            return None if is_empty else TimedOffset(NO_TIMESTAMP, partition.log_start)
        if run.base >= partition.log_start:
            return await self._first_in_run(partition, run, run.max_timestamp, 0, search)
        # A part of this run is no longer readable, perhaps the part with that timestamp.
        start = partition.log_start
        latest_in_run = 0

        def is_seen(batch: StoredBatch) -> bool:
            nonlocal latest_in_run
            latest_in_run = max(latest_in_run, batch.max_timestamp)
            return False

        async with self._window(search):
            await self._first_batch(partition, run, start, is_seen)
        later = partition.find_max_time(run.last + 1)
        if later is not None and later.max_timestamp > latest_in_run:
            return await self._first_in_run(partition, later, later.max_timestamp, start, search)
        return await self._first_in_run(partition, run, latest_in_run, start, search)

    async def _first_in_run(
        self, partition: PartitionLog, run: Run, timestamp: int, from_offset: int, search: _Search
    ) -> TimedOffset | None:
        def is_late(batch: StoredBatch) -> bool:
            return self._latest.get(_place_of(batch), batch.max_timestamp) >= timestamp

        offset = from_offset
        while offset <= run.last:
            async with self._window(search) as share:
                batch = await self._first_batch(partition, run, offset, is_late)
                if batch is None:
                    return None
                # Only the batch is held while it waits to be decompressed.
                share.grow(len(batch.data))
                share.release(keep=len(batch.data))
                in_batch = TimeSearch(batch, timestamp, from_offset, self.max_decompressed_bytes)
                await self._opener.run(search.owner, partition.topic_id, in_batch)
            if in_batch.found is not None:
                return in_batch.found
            self._remember(batch, in_batch.latest)
            offset = batch.last_offset + 1
        return None

    @asynccontextmanager
    async def _window(self, search: _Search) -> AsyncIterator[Share]:
        # The request times out before this deadline.
        share = await self._budget.acquire(WINDOW_BYTES, search.deadline + 1, search.owner)
        try:
            yield share
        finally:
            share.release()

    async def _first_batch(
        self, partition: PartitionLog, run: Run, from_offset: int, is_it: Callable[[StoredBatch], bool]
    ) -> StoredBatch | None:
        """The first batch of the run, of those with `from_offset` or later offsets, for which `is_it`. Read a
        window at a time, and copied out of its window."""
        stream = BatchStream([run], max(run.base, from_offset), run.last + 1, self._offset_index, partition)
        while not stream.at_end:
            (failure,) = await self._reader.read([ReadRequest(stream, WINDOW_BYTES)], WINDOW_BYTES)
            batches, stream.batches = stream.batches, []
            for batch in batches:
                if is_it(batch):
                    stream.note_end(batch)
                    return batch._replace(data=memoryview(bytes(batch.data)))
            if failure is not None:
                raise failure
        return None

    def _remember(self, batch: StoredBatch, latest: int) -> None:
        if is_marker(batch.run):
            return  # others have the same place, which is none
        self._latest[_place_of(batch)] = latest
        if len(self._latest) > MAX_KNOWN:
            self._latest.popitem(last=False)


def _place_of(batch: StoredBatch) -> tuple[int, int]:
    return batch.run.object_number, batch.end_position


def _end(partition: PartitionLog, isolation: int) -> int:
    return partition.last_stable if isolation == READ_COMMITTED else partition.high_watermark
