"""Deciding a commit: offsets for the batches of one stored object.

Batches are decided one by one in their order in the object; a refusal of one does not concern the others.
Accepted batches of one partition that are adjacent become one run.
"""

from collections.abc import Sequence

from ledger.adoption.state import Adoptions, AdoptionsOfEntry
from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.keys import created_ms, is_adopted, is_inline, is_of_job, is_placed
from ledger.machine import Decision
from ledger.objects.state import DATA_STORE, Origin, max_object_number, origin_of
from ledger.objects.uploads import ObjectKind, Upload
from ledger.overlay import Overlay
from ledger.partitions.newcomers import admit_newcomer
from ledger.partitions.producers import (
    FRESH,
    NO_EPOCH,
    Fenced,
    OutOfOrder,
    ProducerState,
    Repeat,
    add_sequence,
    is_after,
    judge,
)
from ledger.partitions.records import BatchRow, FileCommitted, RunRow
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    CommitPlaced,
    Committed,
    FileCommit,
    StaleObject,
)
from ledger.partitions.runs import later_timestamp, without_timestamp
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_ORIGINS
from ledger.requests import Refused
from ledger.state import LedgerState
from ledger.transactions.commit import TransactionsOfCommit
from ledger.types import TopicId

_ADOPTING = Refused(
    ErrorName.KAFKA_STORAGE_ERROR, "the topic is being adopted: it takes records when that has ended"
)
_SETTLED = "its uploader has declared this draft settled: whether the batch was stored is not known"


def commit_file(state: LedgerState, overlay: Overlay, request: CommitFile, now_ms: int) -> Decision:
    """The results in request order, and the record that makes them true, unless nothing was accepted."""
    if request.upload is not None and _is_settled(state, overlay, request.upload):
        # Its first results are dropped: it must never be counted as if it came for the first time.
        return Decision(_all_refused(request, ErrorName.REQUEST_TIMED_OUT, _SETTLED))
    if is_placed(request.locator):
        # Only the owner commits from there, and only while it appends.
        return Decision(StaleObject())
    origin = request.origin or origin_of(request.locator)
    known_bytes = _committed_bytes(state, overlay, request, origin.created_ms)
    if known_bytes is None:
        return Decision(_stale_or_repeat(state, overlay, request, now_ms))
    is_new = _is_new(state, overlay, request.locator)
    if is_new and (refusal := _used_up(state, overlay)):
        return Decision(_all_refused(request, ErrorName.KAFKA_STORAGE_ERROR, refusal))
    deciding = _Commit(state, overlay, request, now_ms)
    results = [deciding.batch(batch, batch.start < known_bytes) for batch in request.batches]
    if not deciding.runs:
        return Decision(FileCommit(results), deciding.transactions.records)
    overlay.new_objects += is_new
    overlay.object_bytes[request.locator] = max(known_bytes, request.object_bytes)
    if request.upload is not None:
        origin = origin._replace(uploader=request.upload.uploader)
        if state.feature_level >= LEVEL_WITH_ORIGINS:
            _settle(overlay, request.upload)
    record = FileCommitted(
        request.locator,
        request.object_bytes,
        deciding.runs,
        deciding.batches,
        origin,
        request.upload,
    )
    return Decision(FileCommit(results), (*deciding.transactions.records, record))


def commit_placed(state: LedgerState, overlay: Overlay, request: CommitPlaced, now_ms: int) -> Decision:
    """The same for a draft that is appended with its entry."""
    locator = request.locator
    is_new = _is_new(state, overlay, locator)
    if is_new and (refusal := _used_up(state, overlay)):
        return Decision(_all_refused(request, ErrorName.KAFKA_STORAGE_ERROR, refusal))
    deciding = _Commit(state, overlay, request, now_ms)
    results = [deciding.batch(batch, maybe_repeat=False) for batch in request.batches]
    if not deciding.runs:
        return Decision(FileCommit(results), deciding.transactions.records)
    overlay.new_objects += is_new
    overlay.object_bytes[locator] = request.object_bytes
    if is_inline(locator):
        origin = Origin(ObjectKind.INLINE, DATA_STORE, now_ms, None)
    else:
        origin = Origin(ObjectKind.WAL, DATA_STORE, created_ms(locator), None)
    record = FileCommitted(locator, request.object_bytes, deciding.runs, deciding.batches, origin)
    return Decision(FileCommit(results), (*deciding.transactions.records, record))


def _is_new(state: LedgerState, overlay: Overlay, locator: str) -> bool:
    return locator not in state.objects.by_locator and locator not in overlay.object_bytes


def _used_up(state: LedgerState, overlay: Overlay) -> str:
    """Why no new object can be entered; empty if one can."""
    most = max_object_number(state.feature_level)
    if state.objects.next_number + overlay.new_objects <= most:
        return ""
    reason = f"all {most + 1:,} numbers of objects are used up: no more can be stored here"
    if state.feature_level < LEVEL_WITH_ORIGINS:
        reason += f"; ledger.feature_level = {LEVEL_WITH_ORIGINS} has more"
    return reason


def _is_settled(state: LedgerState, overlay: Overlay, upload: Upload) -> bool:
    """Whether no commit of this draft may come any more."""
    is_declared = upload.draft <= overlay.settled.get(upload.uploader, 0)
    return is_declared or state.objects.uploaders.is_settled(upload)


def _settle(overlay: Overlay, upload: Upload) -> None:
    overlay.settled[upload.uploader] = max(overlay.settled.get(upload.uploader, 0), upload.settled)


def _all_refused(request: CommitFile | CommitPlaced, error: ErrorName, message: str) -> FileCommit:
    return FileCommit([Refused(error, message)] * len(request.batches))


def _committed_bytes(
    state: LedgerState, overlay: Overlay, request: CommitFile, created_ms: int
) -> int | None:
    """How much of the object is committed; None if nothing new may be committed from it."""
    if is_of_job(request.locator) or is_adopted(request.locator):
        return None
    known = state.objects.by_locator.get(request.locator)
    closed = known is not None and (known.closed or known.number in overlay.touched_objects)
    if closed or created_ms < overlay.floor_ms:
        return None
    return overlay.object_bytes.get(request.locator, known.size if known is not None else 0)


def _stale_or_repeat(
    state: LedgerState, overlay: Overlay, request: CommitFile, now_ms: int
) -> FileCommit | StaleObject:
    deciding = _Commit(state, overlay, request, now_ms)
    results = [deciding.repeat(batch) for batch in request.batches]
    repeated = [result for result in results if result is not None]
    return FileCommit(repeated) if len(repeated) == len(results) else StaleObject()


class _Commit:
    """Walks the batches of one commit."""

    def __init__(
        self, state: LedgerState, overlay: Overlay, request: CommitFile | CommitPlaced, now_ms: int
    ) -> None:
        self.state = state
        self.overlay = overlay
        self.locator = request.locator
        self.first_sequences = request.first_sequences
        self._may_be_repeated = isinstance(request, CommitFile)
        self.without_timestamp = without_timestamp(now_ms)
        self.known = state.objects.by_locator.get(request.locator)
        self.runs: list[RunRow] = []
        self.batches: list[BatchRow] = []
        self._adoptions = state.part(Adoptions)
        self._opened = overlay.part(AdoptionsOfEntry).opened
        self.transactions = TransactionsOfCommit(state, overlay, request.transactions, now_ms)
        self._end = -1
        """Where the last run ends."""
        self._topic_id = b""
        self._partitions: Sequence[PartitionLog] = ()
        """The partitions of the topic that was looked up last."""
        self._made: Sequence[PartitionLog | None] = ()
        """The same, with None for those that are still blank."""

    def batch(self, batch: CommitBatch, maybe_repeat: bool) -> Committed | Refused:
        if maybe_repeat and (first := self.repeat(batch)) is not None:
            return first
        log = self._partition(batch)
        if log is None:
            return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
        if (self._adoptions or self._opened) and self._is_adopting(batch.topic_id):
            return _ADOPTING
        overlay, number = self.overlay, log.number
        base = overlay.next_offset.get(number, log.high_watermark)
        if batch.producer_id >= 0:
            result = self._producer(log, batch, base)
            if result is not None:
                return result
        overlay.next_offset[number] = base + batch.record_count
        if self._may_be_repeated:
            overlay.repeats[self.locator, batch.start] = base
        self._take(number, batch, base)
        return Committed(base, overlay.log_start.get(number, log.log_start))

    def _is_adopting(self, topic_id: TopicId) -> bool:
        adoption = self._adoptions.get(topic_id)
        return topic_id in self._opened or (adoption is not None and adoption.is_open)

    def repeat(self, batch: CommitBatch) -> Committed | None:
        """The first result of this (object, byte offset), if there was one."""
        base = self.overlay.repeats.get((self.locator, batch.start))
        if base is None and self.known is not None:
            base = self.known.base_offset_at(batch.start)
        if base is None:
            return None
        log = self._partition(batch)
        return Committed(base, self._log_start(log) if log is not None else 0, duplicate=True)

    def _partition(self, batch: CommitBatch) -> PartitionLog | None:
        if batch.topic_id != self._topic_id:
            topic = self.state.topics.by_id.get(batch.topic_id)
            is_there = topic is not None and batch.topic_id not in self.overlay.deleted
            self._topic_id = batch.topic_id
            self._partitions = topic.partitions if topic is not None and is_there else ()
            self._made = topic.partitions.made if topic is not None and is_there else ()
        at, made = batch.partition, self._made
        return made[at] or self._partitions[at] if 0 <= at < len(made) else None

    def _log_start(self, log: PartitionLog) -> int:
        return self.overlay.log_start.get(log.number, log.log_start)

    def _producer(self, log: PartitionLog, batch: CommitBatch, base: int) -> Committed | Refused | None:
        """None if the producer may append the batch, which is noted; else the result."""
        if batch.attributes & TRANSACTIONAL_BIT or batch.producer_id in log.isolation.open:
            refusal = self.transactions.refusal(log, batch)
            if refusal is not None:
                return refusal
        return self._sequence(log, batch, base)

    def _sequence(self, log: PartitionLog, batch: CommitBatch, base: int) -> Committed | Refused | None:
        """None for the next batch in sequence, which is noted; else the result."""
        producers, key = self.overlay.producers, (log.number, batch.producer_id)
        producer = producers.get(key) or log.producers.get(batch.producer_id)
        epoch, first = batch.producer_epoch, batch.base_sequence
        last = add_sequence(first, batch.record_count - 1)
        verdict = judge(producer, epoch, first, last)
        if verdict is FRESH:
            if producer is None or producer.epoch == NO_EPOCH:
                if (refusal := self._begin(log, batch, producer)) is not None:
                    return refusal
                producer = producer or ProducerState(epoch)
            producers[key] = producer.after(epoch, first, last, base)
            return None
        match verdict:
            case Repeat(base_offset=known):
                return Committed(known, self._log_start(log), duplicate=True)
            case OutOfOrder(expected=expected):
                return _out_of_order(first, expected)
            case Fenced(current_epoch=current):
                return Refused(ErrorName.INVALID_PRODUCER_EPOCH, f"the producer's epoch is {current} by now")
        return None

    def _begin(self, log: PartitionLog, batch: CommitBatch, producer: ProducerState | None) -> Refused | None:
        """A producer may begin with any sequence, as its earlier records may have been deleted; but not where
        the sender knows of a batch before this one, which then was not committed."""
        if batch.base_sequence and self.transactions.begins_at_zero(batch):
            return _out_of_order(batch.base_sequence, 0)
        if self.first_sequences is not None:
            key = (batch.topic_id, batch.partition, batch.producer_id, batch.producer_epoch)
            expected = self.first_sequences.get(key)
            if expected is not None and is_after(batch.base_sequence, expected):
                return _out_of_order(batch.base_sequence, expected)
        return admit_newcomer(self.state, self.overlay, log) if producer is None else None

    def _take(self, number: int, batch: CommitBatch, base: int) -> None:
        """Into a new run, or the last if that is of the same partition and ends where this batch begins."""
        _, _, start, size, records, max_timestamp, attributes, producer_id, epoch, sequence = batch
        last = base + records - 1
        self.batches.append((size, records, max_timestamp, producer_id, epoch, sequence, attributes))
        if max_timestamp < 0:
            # Its age is counted from this entry.
            max_timestamp = self.without_timestamp
        run = (number, start, size, base, last, max_timestamp, 1)
        if start == self._end and self.runs[-1][0] == number:
            _, start, before, base, _, stamp, count = self.runs.pop()
            run = (number, start, before + size, base, last, later_timestamp(stamp, max_timestamp), count + 1)
        self._end = batch.start + size
        self.runs.append(run)


def _out_of_order(sequence: int, expected: int) -> Refused:
    reason = f"sequence {sequence} came where {expected} was expected"
    return Refused(ErrorName.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)
