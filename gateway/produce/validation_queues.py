"""Per-partition queues of batches whose records are validated before they go into a draft.

A batch that needs no validation is queued too while others of its partition are: so offsets follow the order
of arrival. A partition without such batches has no queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.produce.accumulator import PendingBatch
from gateway.produce.record_validation import RecordValidation, RecordValidator
from gateway.produce.refusals import GATEWAY_FAILED, SHUTTING_DOWN, Refusal
from gateway.produce.sequence_gaps import SequenceGaps
from gateway.scheduling.batch_opening import BatchOpener, NotWanted
from gateway.scheduling.slices import Owner
from gateway.telemetry.logs import QuietLog
from ledger.batch.header import CheckedBatch
from ledger.errors import ErrorName
from ledger.types import TopicId

quiet = QuietLog()

MAX_QUEUED: Final = 1_000
"""Batches of one connection and topic in the queues."""
SWEEP_S: Final = 0.5
SWEPT_AT_ONCE: Final = 5_000
NOTHING: Final = memoryview(b"")


@dataclass(slots=True, eq=False)
class QueuedBatch:
    pending: PendingBatch
    batch: CheckedBatch
    validation: RecordValidation | None
    """None for a batch that only keeps its place after others."""
    stamp: bool
    """Whether it gets a LogAppendTime."""
    is_over: bool = False
    """Whether it has left its queue, or keeps only its place in it."""

    def release(self) -> None:
        """Its request is done: it keeps its place, for the gap that it leaves, and no bytes of it."""
        self.is_over = True
        self.pending.data = NOTHING
        self.batch = CheckedBatch(self.batch.header, NOTHING)


class ValidationQueues:
    """`accept` is called with each batch that may be stored, `fail` with one whose validation failed."""

    def __init__(
        self,
        opener: BatchOpener,
        gaps: SequenceGaps,
        accept: Callable[[PendingBatch, bool], None],
        fail: Callable[[Sequence[PendingBatch], ErrorName, str], None],
    ) -> None:
        self._opener = opener
        self._gaps = gaps
        self._accept = accept
        self._fail = fail
        self.by_partition: dict[int, deque[QueuedBatch]] = {}
        """By partition number. The same dict for as long as this lives."""
        self.tasks: dict[asyncio.Task[None], None] = {}
        """One for each queue."""
        self._queued: dict[tuple[int, TopicId], int] = {}
        """The number of queued batches of each connection and topic."""
        self._swept: deque[QueuedBatch] = deque()
        """Those that still hold bytes of a request, and some that have left their queues since."""
        self._sweep_timer: asyncio.TimerHandle | None = None

    def add(self, queued: QueuedBatch) -> None:
        """Queue a batch after those of the same partition, or refuse it."""
        pending = queued.pending
        number = pending.log.number
        sender = _sender_of(pending)
        count = self._queued.get(sender, 0)
        if count >= MAX_QUEUED:
            self._gaps.note(pending)
            pending.refused(
                ErrorName.KAFKA_STORAGE_ERROR, f"{count} batches of this connection wait to be opened"
            )
            return
        self._queued[sender] = count + 1
        self._swept.append(queued)
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep, 0)
        queue = self.by_partition.get(number)
        if queue is not None:
            queue.append(queued)
            return
        self.by_partition[number] = deque([queued])
        task = asyncio.create_task(self._run(number))
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)

    def refuse_all(self) -> None:
        """Those whose tasks were cancelled before their first step."""
        for queue in self.by_partition.values():
            for queued in queue:
                queued.pending.refused(ErrorName.KAFKA_STORAGE_ERROR, SHUTTING_DOWN)
        self.by_partition.clear()
        self._queued.clear()
        self._swept.clear()

    def _sweep(self, swept: int) -> None:
        """Release batches whose requests are done. Their clients may send further ones, and those before them
        may take minutes: without this they would hold any number of requests, which no budget counts.
        `swept`: how many were looked at by the steps of this sweep before."""
        if not swept:
            self._opener.drop_unwanted()
        for _ in range(min(SWEPT_AT_ONCE, len(self._swept) - swept)):
            queued = self._swept.popleft()
            if not queued.is_over and queued.pending.completion.is_done:
                queued.release()
            if not queued.is_over:
                self._swept.append(queued)
                swept += 1
        if not self._swept:
            self._sweep_timer = None
            return
        is_whole = swept >= len(self._swept)
        self._sweep_timer = asyncio.get_running_loop().call_later(
            SWEEP_S if is_whole else 0.0, self._sweep, 0 if is_whole else swept
        )

    async def _run(self, number: int) -> None:
        queue = self.by_partition[number]
        try:
            while queue:
                try:
                    await self._validate(queue[0])
                except Exception as error:
                    quiet.error("produce.not_opened", reason=type(error).__name__, exc_info=error)
                    self._fail([queue[0].pending], ErrorName.UNKNOWN_SERVER_ERROR, GATEWAY_FAILED)
                self._dequeued(queue.popleft())
        finally:
            del self.by_partition[number]
            for queued in queue:
                self._dequeued(queued)
                queued.pending.refused(ErrorName.KAFKA_STORAGE_ERROR, SHUTTING_DOWN)

    async def _validate(self, queued: QueuedBatch) -> None:
        """Validate the records of one batch in a thread, if it needs that, and accept or refuse it."""
        pending, completion = queued.pending, queued.pending.completion
        outcome: CheckedBatch | Refusal = queued.batch
        try:
            if not completion.wants_result():
                raise NotWanted
            if queued.validation is not None:
                validator = RecordValidator(queued.batch, queued.validation)
                owner, topic_id = Owner(*completion.sender), pending.log.topic_id
                await self._opener.run(owner, topic_id, validator, completion.wants_result)
                outcome = validator.outcome
        except NotWanted:
            self._gaps.note(pending)
            completion.count_down()
            return
        if isinstance(outcome, Refusal):
            pending.record_errors = outcome.records
            pending.in_log = outcome.in_log
            pending.refused(outcome.error, outcome.message)
            return
        pending.header, pending.data = outcome
        self._accept(pending, queued.stamp)
        # The accumulator has counted it once more.
        completion.remaining -= 1

    def _dequeued(self, queued: QueuedBatch) -> None:
        queued.is_over = True
        sender = _sender_of(queued.pending)
        left = self._queued.pop(sender, 0) - 1
        if left > 0:
            self._queued[sender] = left


def _sender_of(pending: PendingBatch) -> tuple[int, TopicId]:
    connection_id, _ = pending.completion.sender
    return connection_id, pending.log.topic_id
