"""The produce room: stores drafts, commits them in order, answers requests.

Group commit: with no draft under way one is written at once; else batches gather until it is committed (over
a store where writes overlap: written), or the next draft is full. Commits keep the order of the drafts.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from gateway.coordination.deadlines import Deadlines
from gateway.coordination.free_space import DiskFull, FreeSpace
from gateway.coordination.shard import Shard
from gateway.produce.accumulator import Accumulator, PendingBatch, Waiter
from gateway.produce.admission import TopicRules
from gateway.produce.gaps import SequenceGaps
from gateway.produce.inspection import Inspecting, Inspection
from gateway.produce.refusals import Refusal
from gateway.requests.opening import BatchOpener, NotWanted
from gateway.requests.slicing import Owner
from gateway.telemetry.logs import QuietLog
from ledger.batch.header import CheckedBatch, stamp_log_append_time
from ledger.errors import OutcomeUnknown, StoreError
from ledger.partitions import PartitionLog
from ledger.ports import SegmentStore
from ledger.producers import TOO_MANY_PRODUCERS
from ledger.requests import CommitBatch, CommitFile, FileCommit, Refused, StaleObject
from ledger.types import Buffer, DraftBatch, Placement, TopicId

log = structlog.get_logger(__name__)
quiet = QuietLog()
"""For what every client's requests say as long as a store is out of reach."""

MAX_OPENING = 1_000
"""Batches of one connection and topic that wait to be opened."""
STORE_ATTEMPTS = 3
"""How often a draft is stored anew because its object had become too old to be committed."""

Stored = Callable[[str, int, Buffer], None]
"""Told of every batch that was committed: locator, start, bytes (for the cache of the fetch room)."""


@dataclass(frozen=True, slots=True)
class _Laned:
    """A batch that waits for its turn in a partition where batches have to be opened."""

    pending: PendingBatch
    batch: CheckedBatch
    inspection: Inspection | None
    """None for one that need not be opened itself."""
    stamp: bool


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    draft_bytes: int
    draft_batches: int
    drafts_in_flight: int


class ProduceRoom:
    """Takes batches, and sees them through storage and commit."""

    def __init__(
        self,
        shard: Shard,
        segments: SegmentStore,
        options: ProduceOptions,
        clock: Callable[[], int],
        stored: Stored | None = None,
        space: FreeSpace | None = None,
        opener: BatchOpener | None = None,
    ) -> None:
        """`clock` judges the timestamps of batches, and stamps those of topics with LogAppendTime."""
        self._shard = shard
        self._opener = opener or BatchOpener()
        self._own_opener = self._opener if opener is None else None
        self._segments = segments
        self._options = options
        self._clock = clock
        self._stored = stored
        self._space = space or FreeSpace(())
        self._gaps = SequenceGaps()
        self.crowded: set[int] = set()
        """Numbers of partitions in which new producers were refused."""
        self.deadlines = Deadlines()
        """Of the requests whose batches are here."""
        self._accumulator = Accumulator(options.draft_bytes, options.draft_batches, self._gaps.note)
        # A draft costs the same two syncs however few batches it holds. Where they wait for one disk, the
        # next is larger, and no later, if it begins when those of the last are done.
        self._most_unfilled = options.drafts_in_flight if segments.capabilities.overlapping else 1
        self._writing = 0
        self._drafts: set[asyncio.Task[None]] = set()
        self._last_draft: asyncio.Task[None] | None = None
        self._closing = False
        self._stopped = False
        self._scheduled = False
        self._lanes: dict[int, deque[_Laned]] = {}
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._opening: dict[tuple[int, TopicId], int] = {}
        """How many batches of a connection and topic are in lanes."""

    def add(
        self, partition: PartitionLog, batch: CheckedBatch, waiter: Waiter, rules: TopicRules
    ) -> PendingBatch:
        """Take up one checked batch of a partition. Never waits: batches of a partition get their offsets
        in the order of these calls, also those that have to be opened first."""
        pending = PendingBatch(partition, batch.header, batch.data, waiter)
        if self._closing:
            waiter.remaining += 1
            pending.refused("KAFKA_STORAGE_ERROR", "the gateway is shutting down")
        elif self._space.refusal:
            waiter.remaining += 1
            self._space.refused += 1
            self._gaps.note(pending)
            pending.refused("KAFKA_STORAGE_ERROR", self._space.refusal)
        else:
            now_ms = self._clock()
            must_open = rules.must_open(batch.header, now_ms)
            if must_open or (self._lanes and partition.number in self._lanes):
                inspection = rules.inspection(now_ms) if must_open else None
                waiter.remaining += 1
                self._enqueue(_Laned(pending, batch, inspection, rules.log_append_time))
            else:
                self._accept(pending, rules.log_append_time)
        return pending

    def _enqueue(self, laned: "_Laned") -> None:
        """Line up behind the batches of the same partition that are being opened."""
        pending = laned.pending
        number = pending.log.number
        opening = self._opening.get(_sender_of(pending), 0)
        if opening >= MAX_OPENING:
            self._gaps.note(pending)
            pending.refused("KAFKA_STORAGE_ERROR", f"{opening} batches of this connection wait to be opened")
            return
        self._opening[_sender_of(pending)] = opening + 1
        lane = self._lanes.get(number)
        if lane is not None:
            lane.append(laned)
            return
        self._lanes[number] = deque([laned])
        task = asyncio.create_task(self._run_lane(number))
        self._lane_tasks.add(task)
        task.add_done_callback(self._lane_tasks.discard)

    async def _run_lane(self, number: int) -> None:
        lane = self._lanes[number]
        try:
            while lane:
                await self._open(lane[0])
                self._opened(lane.popleft())
        finally:
            del self._lanes[number]
            for laned in lane:
                self._opened(laned)
                laned.pending.refused("KAFKA_STORAGE_ERROR", "the gateway is shutting down")

    async def _open(self, laned: "_Laned") -> None:
        """Inspect one batch in a thread, if it needs that, and take it up or refuse it."""
        pending, waiter = laned.pending, laned.pending.waiter
        opened: CheckedBatch | Refusal = laned.batch
        try:
            if not waiter.is_waiting():
                raise NotWanted
            if laned.inspection is not None:
                inspecting = Inspecting(laned.batch, laned.inspection)
                owner, topic_id = Owner(*waiter.sender), pending.log.topic_id
                await self._opener.run(owner, topic_id, inspecting, waiter.is_waiting)
                opened = inspecting.outcome
        except NotWanted:
            self._gaps.note(pending)
            waiter.resolved()
            return
        if isinstance(opened, Refusal):
            pending.record_errors = opened.records
            pending.in_log = opened.in_log
            pending.refused(opened.error, opened.message)
            return
        pending.header, pending.data = opened
        self._accept(pending, laned.stamp)
        # The accumulator counts it by itself.
        waiter.remaining -= 1

    def _opened(self, laned: "_Laned") -> None:
        """It is in no lane any more."""
        sender = _sender_of(laned.pending)
        left = self._opening.pop(sender, 0) - 1
        if left > 0:
            self._opening[sender] = left

    def _accept(self, pending: PendingBatch, stamp: bool) -> None:
        if stamp:
            pending.append_time_ms = self._clock()
            pending.data = stamp_log_append_time(memoryview(pending.data), pending.append_time_ms)
        self._accumulator.add(pending)
        if not self._scheduled and self._may_write():
            # After the other callbacks of this turn, so that requests that came together share a draft.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write_next)

    async def close(self, timeout_s: float) -> None:
        """Let what was taken up be stored, for so long; what then still waits is answered as unknown."""
        self._closing = True
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._drafts and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(set(self._drafts), timeout=left)
        # From here on the end of a draft begins no other.
        self._stopped = True
        abandoned = self._drafts | self._lane_tasks
        for task in abandoned:
            task.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)
        if self._own_opener is not None:
            self._own_opener.close()
        # Those of lanes that were cancelled before their first step.
        for lane in self._lanes.values():
            for laned in lane:
                laned.pending.refused("KAFKA_STORAGE_ERROR", "the gateway is shutting down")
        self._lanes.clear()
        self._opening.clear()
        while len(self._accumulator):
            _refuse_all(self._accumulator.take(), "KAFKA_STORAGE_ERROR", "the gateway is shutting down")
        self.deadlines.close()

    def _may_write(self) -> bool:
        if self._stopped or not len(self._accumulator):
            return False
        if self._accumulator.is_full:
            return len(self._drafts) < self._options.drafts_in_flight
        return self._writing == 0 and len(self._drafts) < self._most_unfilled

    def _write_next(self) -> None:
        self._scheduled = False
        while self._may_write():
            draft = self._accumulator.take()
            if draft:
                task = asyncio.create_task(self._store_then_commit(draft, self._last_draft))
                self._writing += 1
                self._last_draft = task
                self._drafts.add(task)
                task.add_done_callback(partial(self._draft_done, draft))

    def _draft_done(self, draft: Sequence[PendingBatch], task: asyncio.Task[None]) -> None:
        self._drafts.discard(task)
        if task.cancelled():
            # Perhaps before its first step; what it had answered itself stays as it is.
            _refuse_all(draft, "REQUEST_TIMED_OUT", "the gateway was stopped")
        if task is self._last_draft:
            self._last_draft = None
        self._write_next()

    async def _store_then_commit(self, draft: list[PendingBatch], before: asyncio.Task[None] | None) -> None:
        """See one draft through. Never raises: every batch gets an answer."""
        try:
            try:
                placement = await self._write_once(draft)
            finally:
                # A failed draft blocks no later one. But it waits too: the next waits only for this one,
                # and would overtake those before it.
                if before is not None:
                    await asyncio.wait([before])
            await self._commit(*self._without_gaps(draft, placement))
        except OutcomeUnknown as error:
            quiet.warning("produce.outcome_unknown", batches=len(draft), error=str(error))
            _refuse_all(draft, "REQUEST_TIMED_OUT", "whether the batch was stored is not known")
        except DiskFull as error:
            self._space.refused += len(draft)
            self._fail(draft, "KAFKA_STORAGE_ERROR", str(error))
        except StoreError as error:
            quiet.error("produce.storage_failed", batches=len(draft), error=str(error))
            self._fail(draft, "KAFKA_STORAGE_ERROR", "the batch could not be stored")
        except asyncio.CancelledError:
            _refuse_all(draft, "REQUEST_TIMED_OUT", "the gateway was stopped")
            raise
        except Exception:
            log.exception("produce.failed", batches=len(draft))
            self._fail(draft, "UNKNOWN_SERVER_ERROR", "the gateway failed; its log says how")

    def _fail(self, draft: Sequence[PendingBatch], error: str, message: str) -> None:
        for pending in draft:
            if not pending.error:
                self._gaps.note(pending)
        _refuse_all(draft, error, message)

    def _without_gaps(
        self, draft: list[PendingBatch], placement: Placement
    ) -> tuple[list[PendingBatch], Placement]:
        """What may be committed of a draft, now that all before it are answered; the rest is refused."""
        if not len(self._gaps):
            return draft, placement
        kept = [i for i, pending in enumerate(draft) if not self._is_behind_gap(pending)]
        if len(kept) == len(draft):
            return draft, placement
        starts = [placement.starts[i] for i in kept]
        return [draft[i] for i in kept], Placement(placement.locator, starts, placement.object_bytes)

    def _is_behind_gap(self, pending: PendingBatch) -> bool:
        """If so, it is refused."""
        missing = self._gaps.missing_before(pending)
        if missing is None:
            return False
        came = pending.header.base_sequence
        pending.in_log = True
        pending.refused("OUT_OF_ORDER_SEQUENCE_NUMBER", f"sequence {came} came where {missing} was expected")
        return True

    async def _write_once(self, draft: list[PendingBatch]) -> Placement:
        try:
            return await self._write(draft)
        finally:
            self._writing -= 1
            self._write_next()

    async def _write(self, draft: list[PendingBatch]) -> Placement:
        # A key must never lie below the orphan floor, however slow this host's clock is.
        created_ms = self._shard.now_ms()
        with self._space.writing(sum(len(pending.data) for pending in draft)):
            return await self._segments.write([_draft_batch(pending) for pending in draft], created_ms)

    async def _commit(self, draft: list[PendingBatch], placement: Placement) -> None:
        if not draft:
            return
        # Durable before numbered: a crash in between leaves an orphan, never an offset without bytes.
        for attempt in range(STORE_ATTEMPTS):
            if attempt:
                # Once answered with an error, a batch is in no new attempt.
                draft = self._waited_for(draft)
                if not draft:
                    return
                placement = await self._write(draft)
            try:
                answer = await self._shard.submit(_commit_file(draft, placement))
            except StoreError:
                await self._leave(placement.locator)
                raise
            if isinstance(answer, FileCommit):
                self._answer(draft, placement, answer)
                return
            assert isinstance(answer, StaleObject)
            log.warning("produce.object_too_old", locator=placement.locator)
            await self._leave(placement.locator)
        raise StoreError(f"the draft was too old to be committed {STORE_ATTEMPTS} times")

    def _waited_for(self, draft: Sequence[PendingBatch]) -> list[PendingBatch]:
        for pending in draft:
            if pending.waiter.given_up:
                self._gaps.note(pending)
        kept = [pending for pending in draft if not pending.waiter.given_up]
        return [pending for pending in kept if not self._is_behind_gap(pending)]

    async def _leave(self, locator: str) -> None:
        """No further draft goes into this object. What the commit came to counts, whether or not the store
        could be told."""
        try:
            await self._segments.abandon(locator)
        except StoreError as error:
            log.warning("produce.object_not_abandoned", locator=locator, error=str(error))

    def _answer(self, draft: list[PendingBatch], placement: Placement, answer: FileCommit) -> None:
        for pending, start, result in zip(draft, placement.starts, answer.results, strict=True):
            if isinstance(result, Refused):
                # Sequences and epochs are judged at the log; a partition that is gone has none.
                pending.in_log = not result.error.startswith("UNKNOWN_")
                if result.error == TOO_MANY_PRODUCERS:
                    self._gaps.note(pending)
                    self.crowded.add(pending.log.number)
                pending.refused(result.error, result.message)
                continue
            if result.duplicate and pending.append_time_ms < 0:
                # A quirk of Kafka's: what came before is answered with a time, whoever stamps.
                pending.append_time_ms = pending.header.max_timestamp
            if self._stored is not None and not result.duplicate:
                self._stored(placement.locator, start, pending.data)
            pending.accepted(result.base_offset, result.log_start)


def _sender_of(pending: PendingBatch) -> tuple[int, TopicId]:
    connection_id, _ = pending.waiter.sender
    return connection_id, pending.log.topic_id


def _draft_batch(pending: PendingBatch) -> DraftBatch:
    header = pending.header
    return DraftBatch(
        pending.log.topic_id,
        pending.log.index,
        pending.data,
        header.record_count,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def _commit_file(draft: Sequence[PendingBatch], placement: Placement) -> CommitFile:
    batches = []
    for pending, start in zip(draft, placement.starts, strict=True):
        header = pending.header
        max_timestamp = pending.append_time_ms if pending.append_time_ms >= 0 else header.max_timestamp
        batches.append(
            CommitBatch(
                pending.log.topic_id,
                pending.log.index,
                start,
                len(pending.data),
                header.record_count,
                max_timestamp,
                header.attributes,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            )
        )
    return CommitFile(placement.locator, placement.object_bytes, batches)


def _refuse_all(draft: Sequence[PendingBatch], error: str, message: str) -> None:
    for pending in draft:
        if not pending.error and pending.base_offset < 0:
            pending.refused(error, message)
