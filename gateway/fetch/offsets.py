"""The offsets room: earliest, latest, by time. Every answer is exact as of after the request came.

| timestamp | since version | answer                                                        |
|-----------|---------------|---------------------------------------------------------------|
| >= 0      | 1             | the first record as late as that, with its timestamp           |
| -1        | 1             | high watermark, or last stable offset for read_committed       |
| -2        | 1             | log start offset                                               |
| -3        | 7             | the first record with the greatest timestamp (KIP-734)          |
| -4        | 8             | log start offset: there is no tier between (KIP-405)            |
| -5        | 9             | offset -1: no tiered storage, as Kafka answers without it       |
| -6        | 11            | offset -1: likewise (KIP-1023)                                  |

What is not found is offset -1, timestamp -1, leader epoch -1 without an error; what is found has leader
epoch 0.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import structlog

from gateway.coordination.shard import Shard
from gateway.fetch.budget import NO_OWNER, FetchBudget, Share
from gateway.fetch.hints import PositionHints
from gateway.fetch.planning import READ_COMMITTED, check_epoch
from gateway.fetch.reader import Missing, RunReader, Wish
from gateway.fetch.stream import BatchStream, Damaged, StoredBatch
from gateway.fetch.timestamps import TimedOffset, TimeSearch
from gateway.requests.opening import BatchOpener
from gateway.requests.slicing import Owner, Slices, paced
from gateway.wire.errors import ErrorCode
from ledger.batch.header import LEADER_EPOCH
from ledger.errors import StoreError
from ledger.partitions import PartitionLog
from ledger.runs import Run
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
NOTHING: Final = -1
WINDOW_BYTES: Final = 1024 * 1024
STALE_PLANS: Final = 3
SEARCHES_AT_ONCE: Final = 16
"""Partitions of one request that are searched by time at once."""
SEARCH_BYTES: Final = 64 * 1024 * 1024
"""What all searches hold of the store, granted in turn by connection: a window each while they read, then the
batch that is opened."""
MAX_KNOWN: Final = 10_000
"""Opened batches of which it is remembered how late their latest record is."""


@dataclass(frozen=True, slots=True)
class OffsetQuestion:
    """`timestamp` is Unix ms, or one of the negative ones of the table above."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    error: ErrorCode = ErrorCode.NONE
    timestamp: int = NOTHING
    offset: int = NOTHING
    leader_epoch: int = NOTHING


@dataclass(frozen=True, slots=True)
class _Asking:
    """What the questions of a request have in common."""

    isolation: int
    deadline: float
    owner: Owner


class OffsetsRoom:
    """Answers ListOffsets."""

    def __init__(
        self, shard: Shard, reader: RunReader, opener: BatchOpener, max_decompressed_bytes: int
    ) -> None:
        self._shard = shard
        self._reader = reader
        self._opener = opener
        self.max_decompressed_bytes = max_decompressed_bytes
        self._hints = PositionHints()
        self._budget = FetchBudget(SEARCH_BYTES)
        self._latest: OrderedDict[tuple[int, int], int] = OrderedDict()
        """By object number and position, of opened batches in which nothing was found: how late their latest
        record is. Their headers promised more, and would again."""

    async def list_offsets(
        self,
        version: int,
        questions: Sequence[OffsetQuestion],
        isolation: int,
        deadline: float,
        slices: Slices | None = None,
        owner: Owner = NO_OWNER,
    ) -> list[OffsetAnswer]:
        """One answer a question, in order. `deadline` is loop time: what is not known by then is
        REQUEST_TIMED_OUT. `slices` are those of a request that may have very many."""
        try:
            await self._shard.barrier(deadline)
        except TimeoutError:
            return [OffsetAnswer(ErrorCode.REQUEST_TIMED_OUT)] * len(questions)
        except StoreError as error:
            log.warning("list_offsets.barrier_failed", error=str(error))
            return [OffsetAnswer(ErrorCode.KAFKA_STORAGE_ERROR)] * len(questions)
        answers = [self._at_once(version, question, isolation) async for question in paced(slices, questions)]
        searches = {i: questions[i] for i, answer in enumerate(answers) if answer is None}
        if searches and slices is not None:
            # A search may last until the deadline, and has a budget of its own.
            slices.leave()
        asking = _Asking(isolation, deadline, owner)
        found = await self._search_all(list(searches.values()), asking) if searches else []
        results = dict(zip(searches, found, strict=True))
        return [answer if answer is not None else results[i] for i, answer in enumerate(answers)]

    def _at_once(self, version: int, question: OffsetQuestion, isolation: int) -> OffsetAnswer | None:
        """What the ledger alone knows; None if batches must be read."""
        timestamp = question.timestamp
        if timestamp < 0 and version < FIRST_VERSION_OF.get(timestamp, version + 1):
            return OffsetAnswer(ErrorCode.UNSUPPORTED_VERSION)
        partition = self._find(question)
        if partition is None:
            return OffsetAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        epoch_error = check_epoch(question.current_leader_epoch)
        if epoch_error is not ErrorCode.NONE:
            return OffsetAnswer(epoch_error)
        match timestamp:
            case -1:
                return OffsetAnswer(offset=_end(partition, isolation), leader_epoch=LEADER_EPOCH)
            case -2 | -4:
                return OffsetAnswer(offset=partition.log_start, leader_epoch=LEADER_EPOCH)
            case -5 | -6:
                return OffsetAnswer()
        return None

    def _find(self, question: OffsetQuestion) -> PartitionLog | None:
        topic = self._shard.state.topics.by_name.get(question.topic)
        if topic is None or not 0 <= question.partition < len(topic.partitions):
            return None
        return topic.partitions[question.partition]

    async def _search_all(self, questions: Sequence[OffsetQuestion], asking: _Asking) -> list[OffsetAnswer]:
        # As many tasks as may search at once, not one a question: a request may hold very many.
        answers: list[OffsetAnswer] = [OffsetAnswer(ErrorCode.REQUEST_TIMED_OUT)] * len(questions)
        waiting = iter(range(len(questions)))

        async def work() -> None:
            for i in waiting:
                answers[i] = await self._search(questions[i], asking)

        try:
            async with asyncio.timeout_at(asking.deadline), asyncio.TaskGroup() as tasks:
                for _ in range(min(SEARCHES_AT_ONCE, len(questions))):
                    tasks.create_task(work())
        except TimeoutError:
            log.warning("list_offsets.timed_out", questions=len(questions))
        return answers

    async def _search(self, question: OffsetQuestion, asking: _Asking) -> OffsetAnswer:
        reason = ""
        for _ in range(1 + STALE_PLANS):
            partition = self._find(question)
            if partition is None:
                return OffsetAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            try:
                found = await self._find_record(partition, question.timestamp, asking)
            except Missing as error:
                reason = str(error)
                await self._refresh(asking.deadline)
                continue
            except StoreError as error:
                log.error("list_offsets.storage_failed", error=str(error))
                return OffsetAnswer(ErrorCode.KAFKA_STORAGE_ERROR)
            except ValueError as error:
                # The batch is as it was produced; what its producer put into it is no list of records.
                log.warning("list_offsets.records_unreadable", topic=question.topic, error=str(error))
                return OffsetAnswer(ErrorCode.CORRUPT_MESSAGE)
            except Damaged as error:
                self._alarm("list_offsets.batch_damaged", question, str(error))
                return OffsetAnswer(ErrorCode.CORRUPT_MESSAGE)
            if found is None or found.offset >= _end(partition, asking.isolation):
                return OffsetAnswer()
            return OffsetAnswer(ErrorCode.NONE, found.timestamp, found.offset, LEADER_EPOCH)
        self._alarm("list_offsets.object_missing", question, reason)
        return OffsetAnswer(ErrorCode.KAFKA_STORAGE_ERROR)

    async def _refresh(self, deadline: float) -> None:
        try:
            await self._shard.barrier(deadline)
        except StoreError as error:
            log.warning("list_offsets.barrier_failed", error=str(error))

    def _alarm(self, event: str, question: OffsetQuestion, reason: str) -> None:
        self._reader.alarm(event, topic=question.topic, partition=question.partition, reason=reason)

    async def _find_record(
        self, partition: PartitionLog, timestamp: int, asking: _Asking
    ) -> TimedOffset | None:
        if timestamp == MAX_TIMESTAMP:
            return await self._latest_record(partition, asking)
        run = partition.find_time(timestamp)
        while run is not None:
            found = await self._first_in_run(partition, run, timestamp, partition.log_start, asking)
            if found is not None:
                return found
            # Its late records lie below the log start offset, or its headers promise what no record holds.
            run = next((r for r in partition.runs_from(run.last + 1) if r.max_timestamp >= timestamp), None)
        return None

    async def _latest_record(self, partition: PartitionLog, asking: _Asking) -> TimedOffset | None:
        run = partition.find_max_time()
        if run is None:
            # Of records without a timestamp the first, as in Kafka.
            is_empty = partition.log_start == partition.high_watermark
            return None if is_empty else TimedOffset(NO_TIMESTAMP, partition.log_start)
        if run.base >= partition.log_start:
            return await self._first_in_run(partition, run, run.max_timestamp, 0, asking)
        # A part of this run is no longer readable, and perhaps the one with that timestamp.
        start = partition.log_start
        here = 0

        def is_seen(batch: StoredBatch) -> bool:
            nonlocal here
            here = max(here, batch.max_timestamp)
            return False

        async with self._window(asking):
            await self._first_batch(partition, run, start, is_seen)
        later = max(partition.runs_from(run.last + 1), key=lambda r: r.max_timestamp, default=None)
        if later is not None and later.max_timestamp > here:
            return await self._first_in_run(partition, later, later.max_timestamp, start, asking)
        return await self._first_in_run(partition, run, here, start, asking)

    async def _first_in_run(
        self, partition: PartitionLog, run: Run, timestamp: int, from_offset: int, asking: _Asking
    ) -> TimedOffset | None:
        def is_late(batch: StoredBatch) -> bool:
            return self._latest.get(_place_of(batch), batch.max_timestamp) >= timestamp

        offset = from_offset
        while offset <= run.last:
            async with self._window(asking) as share:
                batch = await self._first_batch(partition, run, offset, is_late)
                if batch is None:
                    return None
                # Only that is held while it waits to be opened.
                share.grow(len(batch.data))
                share.give_back(keep=len(batch.data))
                search = TimeSearch(batch, timestamp, from_offset, self.max_decompressed_bytes)
                await self._opener.run(asking.owner, partition.topic_id, search)
            if search.found is not None:
                return search.found
            self._remember(batch, search.latest)
            offset = batch.last_offset + 1
        return None

    @asynccontextmanager
    async def _window(self, asking: _Asking) -> AsyncIterator[Share]:
        # Who asks has given up before.
        share = await self._budget.acquire(WINDOW_BYTES, asking.deadline + 1, asking.owner)
        try:
            yield share
        finally:
            share.give_back()

    async def _first_batch(
        self, partition: PartitionLog, run: Run, from_offset: int, is_it: Callable[[StoredBatch], bool]
    ) -> StoredBatch | None:
        """The run's first batch, of those that hold `from_offset` or what follows, that is it. Read a window
        at a time, and given without the rest of its window."""
        stream = BatchStream([run], max(run.base, from_offset), run.last + 1, self._hints, partition)
        while not stream.at_end:
            (failure,) = await self._reader.read([Wish(stream, WINDOW_BYTES)], WINDOW_BYTES)
            batches, stream.batches = stream.batches, []
            for batch in batches:
                if is_it(batch):
                    stream.note_end(batch)
                    return batch._replace(data=memoryview(bytes(batch.data)))
            if failure is not None:
                raise failure
        return None

    def _remember(self, batch: StoredBatch, latest: int) -> None:
        self._latest[_place_of(batch)] = latest
        if len(self._latest) > MAX_KNOWN:
            self._latest.popitem(last=False)


def _place_of(batch: StoredBatch) -> tuple[int, int]:
    return batch.run.object_number, batch.end_position


def _end(partition: PartitionLog, isolation: int) -> int:
    return partition.last_stable if isolation == READ_COMMITTED else partition.high_watermark
