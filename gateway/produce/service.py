"""The produce service: stores drafts, commits them in order, completes the requests.

Group commit: with no draft under way one is written at once; otherwise batches wait until it is committed, or
the next draft is full. Over a store where writes overlap they wait until it is written, or for the linger;
several commits are then under way, in the order of their drafts (`gateway/produce/drafts.py`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import structlog

from gateway.coordination.free_space import DiskFull, FreeSpace
from gateway.coordination.ledger import Ledger
from gateway.produce.accumulator import Accumulator, PendingBatch, ProduceCompletion
from gateway.produce.commits import commit_batches, draft_batches, is_found_at_log, transactions_of
from gateway.produce.drafts import Draft, HandedOver
from gateway.produce.placing import PlacedDrafts, WrittenBatches
from gateway.produce.refusals import GATEWAY_FAILED, OVERTAKEN, SHUTTING_DOWN, STOPPED
from gateway.produce.sequence_gaps import SequenceGaps
from gateway.produce.uploads import UPLOAD_BYTES, Uploads
from gateway.produce.validation import TopicPolicy
from gateway.produce.validation_queues import QueuedBatch, ValidationQueues
from gateway.scheduling.batch_opening import BatchOpener
from gateway.telemetry.logs import QuietLog
from gateway.telemetry.traces import Traces, trace_of_draft
from gateway.telemetry.traffic import Traffic
from gateway.timers.deadlines import Deadlines
from ledger.batch.header import CheckedBatch, stamp_log_append_time
from ledger.errors import ErrorName, OutcomeUnknown, StoreError
from ledger.objects.uploads import NO_UPLOADER, Upload, Uploader
from ledger.partitions.producers import TOO_MANY_PRODUCERS
from ledger.partitions.requests import CommitFile, FileCommit, ProducerKey, StaleObject
from ledger.partitions.state import PartitionLog
from ledger.ports import SegmentStore
from ledger.requests import Refused
from ledger.types import Placement

log = structlog.get_logger(__name__)
quiet = QuietLog(quiet_s=60.0)
"""For events that repeat with every request while a store is out of reach, which has a line of its own."""

STORE_ATTEMPTS = 3
"""How often a draft is stored, if its object becomes too old to be committed."""


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    draft_bytes: int
    draft_batches: int
    drafts_in_flight: int
    linger_ms: int = 0
    """Over a store where writes overlap: while a draft is being written, one that is not full begins this
    long after it. 0: when it is written."""
    uploader: Uploader = NO_UPLOADER
    """This process, in the commits of its drafts; without one the ledger keeps their results for repeats."""
    upload_bytes: int = UPLOAD_BYTES
    """Of the drafts that are written at the same time, unless there is only one."""


class ProduceService:
    """Accepts batches, stores them and commits them."""

    traces: Traces | None = None
    """Where they are enabled."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        shard: Ledger,
        segments: SegmentStore,
        options: ProduceOptions,
        clock: Callable[[], int],
        written: WrittenBatches | None = None,
        space: FreeSpace | None = None,
        opener: BatchOpener | None = None,
    ) -> None:
        """The timestamps of batches are validated against `clock`, which also stamps those of topics with
        LogAppendTime."""
        self._shard = shard
        self._opener = opener or BatchOpener()
        self._own_opener = self._opener if opener is None else None
        self._segments = segments
        self._options = options
        self._clock = clock
        self._written = written
        self._space = space or FreeSpace(())
        self._gaps = SequenceGaps()
        self.crowded: set[int] = set()
        """Numbers of partitions in which new producers were refused."""
        self.deadlines = Deadlines()
        """Of the requests whose batches are not completed."""
        self.traffic = Traffic()
        self._accumulator = Accumulator(options.draft_bytes, options.draft_batches, self._gaps.note)
        # A draft costs the same two syncs whatever its size. Where drafts wait for one disk, the next one is
        # larger, and no later, if it begins when the syncs of the last are done. Nor is its commit earlier if
        # it is handed over before that of the last has its result.
        self._overlapping = segments.capabilities.overlapping
        self._uploads = Uploads(options.drafts_in_flight, options.upload_bytes, overlapping=self._overlapping)
        self._linger_s = options.linger_ms / 1000 if self._overlapping else 0.0
        self._lingers_until = 0.0
        """Loop time."""
        self._linger: asyncio.TimerHandle | None = None
        """While batches wait for the linger."""
        self._drafts: dict[asyncio.Task[None], None] = {}
        self._draft_numbers = count(1)
        self._unsettled: set[int] = set()
        """Numbers of the drafts whose batches do not all have their results."""
        self._last_draft: Draft | None = None
        self._handed_over = HandedOver(self._gaps)
        self._placed = PlacedDrafts(shard, self._accumulator, self._space, written, self)
        self._closing = False
        self._stopped = False
        self._scheduled = False
        self._queues = ValidationQueues(self._opener, self._gaps, self._accept, self._fail)
        self._queued = self._queues.by_partition

    def add(
        self,
        partition: PartitionLog,
        batch: CheckedBatch,
        completion: ProduceCompletion,
        policy: TopicPolicy,
    ) -> PendingBatch:
        """Accept one checked batch of a partition. Never waits: batches of a partition get their offsets in
        the order of these calls, also those whose records have to be validated first."""
        pending = PendingBatch(partition, batch.header, batch.data, completion)
        if self._closing:
            completion.remaining += 1
            pending.refused(ErrorName.KAFKA_STORAGE_ERROR, SHUTTING_DOWN)
        elif self._space.refusal:
            completion.remaining += 1
            self._space.refused += 1
            self._gaps.note(pending)
            pending.refused(ErrorName.KAFKA_STORAGE_ERROR, self._space.refusal)
        else:
            now_ms = self._clock()
            needs_decompression = policy.needs_decompression(batch.header, now_ms)
            if needs_decompression or (self._queued and partition.number in self._queued):
                validation = policy.record_validation(now_ms) if needs_decompression else None
                completion.remaining += 1
                self._queues.add(QueuedBatch(pending, batch, validation, policy.log_append_time))
            else:
                self._accept(pending, policy.log_append_time)
        return pending

    def _accept(self, pending: PendingBatch, stamp: bool) -> None:
        if stamp:
            pending.append_time_ms = self._clock()
            pending.data = stamp_log_append_time(memoryview(pending.data), pending.append_time_ms)
        self._accumulator.add(pending)
        if self._placed.waiting is not None:
            if not self._placed.may_submit():
                # It has become too large for that.
                self._placed.withdraw()
                self._write_next()
        elif self._may_place():
            # The entry is filled in a later iteration.
            self._placed.submit()
        elif not self._scheduled and self._may_write():
            # After the other callbacks of this iteration, so that requests that arrived together share a
            # draft.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write_next)

    async def close(self, timeout_s: float) -> None:
        """Let accepted batches be stored, for at most `timeout_s`. The outcome of those that then still wait
        is unknown."""
        self._closing = True
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._is_busy and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await self._placed.wait_for_end(left)
            if self._drafts:
                await asyncio.wait(set(self._drafts), timeout=left)
        # From here on the end of a draft begins no other.
        self._stopped = True
        if self._linger is not None:
            self._linger.cancel()
        for draft in self._placed.abandon():
            _refuse_all(draft.batches, ErrorName.REQUEST_TIMED_OUT, STOPPED)
        abandoned = [*self._drafts, *self._queues.tasks]
        for task in abandoned:
            task.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)
        if self._own_opener is not None:
            self._own_opener.close()
        self._queues.refuse_all()
        while len(self._accumulator):
            _refuse_all(self._accumulator.take(), ErrorName.KAFKA_STORAGE_ERROR, SHUTTING_DOWN)
        self.deadlines.close()

    @property
    def _is_busy(self) -> bool:
        return bool(self._drafts or self._placed.under_way) or self._placed.waiting is not None

    def _may_place(self) -> bool:
        """Whether what waits may be submitted with its bytes: not before the last draft was handed over."""
        if self._stopped or self._placed.waiting is not None or not self._accumulator.waiting_bytes:
            return False
        return (self._last_draft is None or self._last_draft.has_passed) and self._placed.may_submit()

    def _may_write(self) -> bool:
        if self._stopped or self._placed.waiting is not None or not self._accumulator.waiting_bytes:
            return False
        size = min(self._accumulator.waiting_bytes, self._options.draft_bytes)
        if not self._uploads.may_begin(size):
            return False
        if not self._drafts or self._accumulator.is_full:
            return True
        # What the journal takes waits for the last draft to be handed over, which an upload of its own would
        # have to wait for too. Else a single large draft would have all that follow closely uploaded as well.
        if self._placed.may_submit():
            return False
        return self._overlapping and (not self._uploads.writing or self._has_lingered())

    def _has_lingered(self) -> bool:
        if not self._linger_s or self._linger is not None:
            return False
        loop = asyncio.get_running_loop()
        if loop.time() >= self._lingers_until:
            return True
        self._linger = loop.call_at(self._lingers_until, self._end_linger)
        return False

    def _begin_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._lingers_until = asyncio.get_running_loop().time() + self._linger_s

    def _end_linger(self) -> None:
        self._linger = None
        # The clock of the loop may be a little behind its timers.
        self._lingers_until = 0.0
        self._write_next()

    def _write_next(self) -> None:
        self._scheduled = False
        if self._accumulator.waiting_bytes and self._may_place():
            self._placed.submit()
        while self._accumulator.waiting_bytes and self._may_write():
            before = self._last_draft
            if (draft := self.next_draft()) is not None:
                self._begin(draft, before)

    def next_draft(self) -> Draft | None:
        batches = self._accumulator.take()
        if not batches:
            return None
        draft = self._last_draft = Draft(next(self._draft_numbers), batches)
        self._unsettled.add(draft.number)
        if self.traces is not None:
            draft.trace = trace_of_draft(
                self.traces, draft.number, [pending.completion.trace for pending in batches]
            )
        return draft

    def handed_over(self, draft: Draft) -> None:
        draft.pass_turn()
        self._write_next()

    def store(self, draft: Draft) -> None:
        """It was to be placed: those before it have been handed over."""
        self._begin(draft, None)

    def _begin(self, draft: Draft, before: Draft | None) -> None:
        task = asyncio.create_task(self._store_then_commit(draft, before))
        self._uploads.begin(draft.size)
        if self._linger_s:
            self._begin_linger()
        self._drafts[task] = None
        task.add_done_callback(partial(self._draft_done, draft))

    def _draft_done(self, draft: Draft, task: asyncio.Task[None]) -> None:
        self._uploads.end(draft.size)
        self._drafts.pop(task, None)
        if task.cancelled():
            # Perhaps before its first step. Results that it has set itself stay.
            _refuse_all(draft.batches, ErrorName.REQUEST_TIMED_OUT, STOPPED)
        self._end(draft)

    def _end(self, draft: Draft) -> None:
        # Whatever the result: no commit of this draft is ever sent again.
        self._unsettled.discard(draft.number)
        self._handed_over.remove(draft)
        draft.pass_turn()
        if draft is self._last_draft:
            self._last_draft = None
        self._write_next()

    def end_placed(self, draft: Draft, outcome: FileCommit | Exception) -> None:
        """A completion of the shard: it never raises."""
        try:
            if isinstance(outcome, FileCommit):
                self._complete(draft, outcome)
            else:
                self._failed(draft, outcome)
        except Exception as error:
            self._failed(draft, error)
        self._end(draft)

    def fail_waiting(self, error: Exception) -> None:
        # One draft: what else waits is submitted again, and its responses go out in another iteration.
        if (draft := self.next_draft()) is not None:
            self._failed(draft, error)
            self._end(draft)

    async def _store_then_commit(self, draft: Draft, before: Draft | None) -> None:
        """Store and commit one draft. Never raises: every batch gets its result."""
        try:
            try:
                placement = await self._write_once(draft)
            finally:
                # A failed draft blocks no later one. But it waits as well: the next draft waits only for this
                # one, and would overtake those before it.
                if before is not None and not before.has_passed:
                    await _turn_after(before)
            before = None
            await self._commit(draft, placement)
        except asyncio.CancelledError:
            _refuse_all(draft.batches, ErrorName.REQUEST_TIMED_OUT, STOPPED)
            raise
        except Exception as error:
            self._failed(draft, error)

    def _failed(self, draft: Draft, error: Exception) -> None:
        if draft.trace is not None:
            draft.trace.end(type(error).__name__)
        match error:
            case OutcomeUnknown():
                quiet.warning("produce.outcome_unknown", batches=len(draft.batches), error=str(error))
                reason = "whether the batch was stored is not known"
                self._fail(draft.batches, ErrorName.REQUEST_TIMED_OUT, reason)
            case DiskFull():
                self._space.refused += len(draft.batches)
                self._fail(draft.batches, ErrorName.KAFKA_STORAGE_ERROR, str(error))
            case StoreError():
                quiet.error("produce.storage_failed", batches=len(draft.batches), error=str(error))
                self._fail(draft.batches, ErrorName.KAFKA_STORAGE_ERROR, "the batch could not be stored")
            case _:
                log.error("produce.failed", batches=len(draft.batches), exc_info=error)
                self._fail(draft.batches, ErrorName.UNKNOWN_SERVER_ERROR, GATEWAY_FAILED)

    def _fail(self, draft: Sequence[PendingBatch], error: ErrorName, message: str) -> None:
        for pending in draft:
            if pending.error is None:
                self._gaps.note(pending)
        _refuse_all(draft, error, message)

    async def _write_once(self, draft: Draft) -> Placement:
        try:
            return await self._write(draft.batches)
        finally:
            if draft.trace is not None:
                draft.trace.stored()
            self._uploads.written(draft.size)
            self._write_next()

    async def _write(self, draft: list[PendingBatch]) -> Placement:
        # A key must never be below the orphan floor, however slow this host's clock is.
        created_ms = self._shard.now_ms()
        with self._space.writing(sum(len(pending.data) for pending in draft)):
            level = self._shard.state.feature_level
            return await self._segments.write(draft_batches(draft), created_ms, level)

    async def _commit(self, draft: Draft, placement: Placement) -> None:
        # Durable before numbered: a crash in between leaves an orphan, never an offset without bytes.
        for attempt in range(STORE_ATTEMPTS):
            if attempt:
                placement = await self._store_again(draft, placement)
                if not draft.batches:
                    return
            first_sequences = self.first_sequences(draft, is_placed=False)
            if self._overlapping:
                # The next draft goes on in a later iteration of the event loop: after this one is submitted,
                # but before an entry is filled.
                draft.pass_turn()
            # A fetch may plan these batches in the iteration in which the entry is applied, before this task
            # goes on.
            self._cache(draft.batches, placement)
            try:
                commit = await self._shard.submit(
                    CommitFile(
                        placement.locator,
                        placement.object_bytes,
                        commit_batches(draft.batches, placement),
                        first_sequences,
                        upload=self._upload(draft),
                        transactions=transactions_of(draft.batches, placement.starts),
                    )
                )
            except StoreError:
                await self._abandon(placement.locator)
                raise
            if isinstance(commit, FileCommit):
                self._complete(draft, commit)
                return
            assert isinstance(commit, StaleObject)
            log.warning("produce.object_too_old", locator=placement.locator)
            await self._abandon(placement.locator)
        raise StoreError(f"the draft was too old to be committed {STORE_ATTEMPTS} times")

    def first_sequences(self, draft: Draft, *, is_placed: bool) -> Mapping[ProducerKey, int] | None:
        placed = self._placed.under_way.values()
        is_alone = (
            not self._drafts and len(placed) == 1 if is_placed else not self._overlapping and not placed
        )
        if is_alone and not self._gaps.first_sequences:
            return None
        for before in placed:
            # It may share producers with this one, and may still fail.
            if before.number < draft.number:
                self._handed_over.add(before)
        return self._handed_over.add(draft)

    def _cache(self, draft: Sequence[PendingBatch], placement: Placement) -> None:
        if self._written is not None:
            for pending, start in zip(draft, placement.starts, strict=True):
                self._written.put(placement.locator, start, pending.data)

    def _upload(self, draft: Draft) -> Upload | None:
        uploader = self._options.uploader
        return None if uploader == NO_UPLOADER else Upload(uploader, draft.number, min(self._unsettled) - 1)

    async def _store_again(self, draft: Draft, placement: Placement) -> Placement:
        """Store what may still be stored of a draft whose object is too old, under a new key. What is left of
        it are its batches then."""
        batches = draft.batches = self._still_wanted(draft)
        if not batches:
            return placement
        placement = await self._write(batches)
        # Meanwhile requests were answered, and later drafts handed over.
        draft.batches = self._still_wanted(draft)
        if len(draft.batches) == len(batches):
            return placement
        kept = set(draft.batches)
        starts = [start for start, pending in zip(placement.starts, batches, strict=True) if pending in kept]
        return Placement(placement.locator, starts, placement.object_bytes)

    def _still_wanted(self, draft: Draft) -> list[PendingBatch]:
        """Without batches whose requests have a response, and those that a later draft has overtaken: these
        must be sent again, in the order that their producer wants."""
        kept = []
        for pending in draft.batches:
            if pending.completion.is_done:
                self._gaps.note(pending)
            elif self._handed_over.has_overtaken(draft, pending.log.number):
                self._fail([pending], ErrorName.KAFKA_STORAGE_ERROR, OVERTAKEN)
            else:
                kept.append(pending)
        return kept

    async def _abandon(self, locator: str) -> None:
        """No further draft goes into this object. If the store cannot be notified, the outcome of the commit
        stays the same."""
        try:
            await self._segments.abandon(locator)
        except StoreError as error:
            log.warning("produce.object_not_abandoned", locator=locator, error=str(error))

    def _complete(self, draft: Draft, commit: FileCommit) -> None:
        if draft.trace is not None:
            draft.trace.end()
        has_gaps, produced = bool(self._gaps.first_sequences), self.traffic.produced
        for pending, result in zip(draft.batches, commit.results, strict=True):
            if isinstance(result, Refused):
                pending.in_log = is_found_at_log(pending, result.error)
                if result.error == TOO_MANY_PRODUCERS:
                    self._gaps.note(pending)
                    self.crowded.add(pending.log.number)
                pending.refused(result.error, result.message)
                continue
            if result.duplicate and pending.append_time_ms < 0:
                # A quirk of Kafka: the response for a duplicate has a timestamp, also with CreateTime.
                pending.append_time_ms = pending.header.max_timestamp
            if not result.duplicate:
                produced(pending.log.topic_id, len(pending.data), pending.header.record_count)
            if has_gaps:
                self._gaps.close(pending)
            pending.accepted(result.base_offset, result.log_start)


async def _turn_after(before: Draft) -> None:
    """Wait until the draft before has been handed over, or will not be."""
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def passed() -> None:
        if not turn.done():
            turn.set_result(None)

    before.on_passed = passed
    await turn


def _refuse_all(draft: Sequence[PendingBatch], error: ErrorName, message: str) -> None:
    for pending in draft:
        if pending.error is None and pending.base_offset < 0:
            pending.refused(error, message)
