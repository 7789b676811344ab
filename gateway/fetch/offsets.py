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
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import structlog

from gateway.coordination.shard import Shard
from gateway.fetch.hints import PositionHints
from gateway.fetch.planning import READ_COMMITTED, check_epoch
from gateway.fetch.reader import Missing, RunReader, Wish
from gateway.fetch.stream import BatchStream, Damaged, StoredBatch
from gateway.fetch.timestamps import TimedOffset, first_since
from gateway.requests.slicing import Slices, paced
from gateway.wire.errors import ErrorCode
from ledger.batch.header import LEADER_EPOCH
from ledger.errors import StoreError
from ledger.partitions import PartitionLog
from ledger.runs import Run

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
PARSING_THREADS: Final = 2
SEARCHES_AT_ONCE: Final = 16
"""Partitions, of all requests, that are searched by time at once; each holds a window of bytes."""


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


class OffsetsRoom:
    """Answers ListOffsets."""

    def __init__(
        self, shard: Shard, reader: RunReader, max_decompressed_bytes: int = 128 * 1024 * 1024
    ) -> None:
        self._shard = shard
        self._reader = reader
        self.max_decompressed_bytes = max_decompressed_bytes
        self._hints = PositionHints()
        self._threads = ThreadPoolExecutor(PARSING_THREADS, thread_name_prefix="list-offsets")
        self._searching = asyncio.Semaphore(SEARCHES_AT_ONCE)

    async def list_offsets(
        self,
        version: int,
        questions: Sequence[OffsetQuestion],
        isolation: int,
        deadline: float,
        slices: Slices | None = None,
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
        found = await self._search_all(list(searches.values()), isolation, deadline) if searches else []
        results = dict(zip(searches, found, strict=True))
        return [answer if answer is not None else results[i] for i, answer in enumerate(answers)]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

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

    async def _search_all(
        self, questions: Sequence[OffsetQuestion], isolation: int, deadline: float
    ) -> list[OffsetAnswer]:
        # As many tasks as may search at once, not one a question: a request may hold very many.
        answers: list[OffsetAnswer] = [OffsetAnswer(ErrorCode.REQUEST_TIMED_OUT)] * len(questions)
        waiting = iter(range(len(questions)))

        async def work() -> None:
            for i in waiting:
                async with self._searching:
                    answers[i] = await self._search(questions[i], isolation, deadline)

        try:
            async with asyncio.timeout_at(deadline), asyncio.TaskGroup() as tasks:
                for _ in range(min(SEARCHES_AT_ONCE, len(questions))):
                    tasks.create_task(work())
        except TimeoutError:
            log.warning("list_offsets.timed_out", questions=len(questions))
        return answers

    async def _search(self, question: OffsetQuestion, isolation: int, deadline: float) -> OffsetAnswer:
        reason = ""
        for _ in range(1 + STALE_PLANS):
            partition = self._find(question)
            if partition is None:
                return OffsetAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            try:
                found = await self._find_record(partition, question.timestamp)
            except Missing as error:
                reason = str(error)
                await self._refresh(deadline)
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
            if found is None or found.offset >= _end(partition, isolation):
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

    async def _find_record(self, partition: PartitionLog, timestamp: int) -> TimedOffset | None:
        if timestamp == MAX_TIMESTAMP:
            return await self._latest_record(partition)
        run = partition.find_time(timestamp)
        while run is not None:
            found = await self._first_in_run(partition, run, timestamp, partition.log_start)
            if found is not None:
                return found
            # Its late records lie below the log start offset, or its headers promise what no record holds.
            run = next((r for r in partition.runs_from(run.last + 1) if r.max_timestamp >= timestamp), None)
        return None

    async def _latest_record(self, partition: PartitionLog) -> TimedOffset | None:
        run = partition.find_max_time()
        if run is None or run.base >= partition.log_start:
            return await self._first_in_run(partition, run, run.max_timestamp, 0) if run is not None else None
        # A part of this run is no longer readable, and perhaps the one with that timestamp.
        start = partition.log_start
        here = 0
        async for batch in self._batches(partition, run, start):
            here = max(here, batch.max_timestamp)
        later = max(partition.runs_from(run.last + 1), key=lambda r: r.max_timestamp, default=None)
        if later is not None and later.max_timestamp > here:
            return await self._first_in_run(partition, later, later.max_timestamp, start)
        return await self._first_in_run(partition, run, here, start)

    async def _first_in_run(
        self, partition: PartitionLog, run: Run, timestamp: int, from_offset: int
    ) -> TimedOffset | None:
        async for batch in self._batches(partition, run, from_offset):
            if batch.max_timestamp >= timestamp:
                search = partial(first_since, batch, timestamp, from_offset, self.max_decompressed_bytes)
                found = await asyncio.get_running_loop().run_in_executor(self._threads, search)
                if found is not None:
                    return found
        return None

    async def _batches(
        self, partition: PartitionLog, run: Run, from_offset: int
    ) -> AsyncIterator[StoredBatch]:
        """The run's batches that hold `from_offset` or what follows, read a window at a time."""
        stream = BatchStream([run], max(run.base, from_offset), run.last + 1, self._hints, partition)
        while not stream.at_end:
            (failure,) = await self._reader.read([Wish(stream, WINDOW_BYTES)], WINDOW_BYTES)
            batches, stream.batches = stream.batches, []
            for batch in batches:
                yield batch
            if failure is not None:
                raise failure


def _end(partition: PartitionLog, isolation: int) -> int:
    return partition.last_stable if isolation == READ_COMMITTED else partition.high_watermark
