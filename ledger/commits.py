"""Deciding a commit: offsets for the batches of one stored object.

Batches are judged one by one in the order in which they lie; a refusal sinks none of its neighbours.
Accepted batches of one partition that lie side by side become one run.
"""

from ledger.keys import created_ms
from ledger.overlay import Overlay
from ledger.partitions import PartitionLog
from ledger.producers import Fenced, OutOfOrder, ProducerState, Repeat, add_sequence, judge
from ledger.records import BatchRow, FileCommitted, RunRow
from ledger.requests import CommitBatch, CommitFile, Committed, FileCommit, Refused, StaleObject
from ledger.state import LedgerState


def decide_commit(
    state: LedgerState, overlay: Overlay, request: CommitFile
) -> tuple[FileCommit | StaleObject, FileCommitted | None]:
    """The answers in request order, and the record that makes them true (None if nothing was accepted)."""
    known_bytes = _committed_bytes(state, overlay, request)
    if known_bytes is None:
        return _stale_or_repeat(state, overlay, request), None
    deciding = _Commit(state, overlay, request.locator)
    results = [deciding.batch(batch, batch.start < known_bytes) for batch in request.batches]
    if not deciding.runs:
        return FileCommit(results), None
    overlay.object_bytes[request.locator] = max(known_bytes, request.object_bytes)
    record = FileCommitted(
        request.locator, request.object_bytes, [run.row() for run in deciding.runs], deciding.batches
    )
    return FileCommit(results), record


def _committed_bytes(state: LedgerState, overlay: Overlay, request: CommitFile) -> int | None:
    """How much of the object is committed; None if nothing new may be committed from it."""
    known = state.files.by_locator.get(request.locator)
    closed = known is not None and (known.closed or known.number in overlay.touched_objects)
    if closed or created_ms(request.locator) < overlay.floor_ms:
        return None
    return overlay.object_bytes.get(request.locator, known.size if known is not None else 0)


def _stale_or_repeat(state: LedgerState, overlay: Overlay, request: CommitFile) -> FileCommit | StaleObject:
    deciding = _Commit(state, overlay, request.locator)
    results = [deciding.repeat(batch) for batch in request.batches]
    answered = [result for result in results if result is not None]
    return FileCommit(answered) if len(answered) == len(results) else StaleObject()


class _OpenRun:
    """A run that the next batch may still lengthen."""

    __slots__ = ("base", "count", "end", "last", "max_timestamp", "number", "start")

    def __init__(self, number: int, start: int, base: int) -> None:
        self.number = number
        self.start = start
        self.end = start
        self.base = base
        self.last = base - 1
        self.max_timestamp = -1
        self.count = 0

    def row(self) -> RunRow:
        return (
            self.number,
            self.start,
            self.end - self.start,
            self.base,
            self.last,
            self.max_timestamp,
            self.count,
        )


class _Commit:
    """Walks the batches of one commit."""

    def __init__(self, state: LedgerState, overlay: Overlay, locator: str) -> None:
        self.state = state
        self.overlay = overlay
        self.locator = locator
        self.known = state.files.by_locator.get(locator)
        self.runs: list[_OpenRun] = []
        self.batches: list[BatchRow] = []

    def batch(self, batch: CommitBatch, maybe_repeat: bool) -> Committed | Refused:
        if maybe_repeat and (first := self.repeat(batch)) is not None:
            return first
        log = self._partition(batch)
        if log is None:
            return Refused("UNKNOWN_TOPIC_OR_PARTITION")
        if batch.producer_id >= 0:
            refusal = self._sequence(log, batch)
            if refusal is not None:
                return refusal
        return self._accept(log, batch)

    def repeat(self, batch: CommitBatch) -> Committed | None:
        """The first answer to this (object, byte offset), if there was one."""
        base = self.overlay.repeats.get((self.locator, batch.start))
        if base is None and self.known is not None:
            base = self.known.answer(batch.start)
        if base is None:
            return None
        log = self._partition(batch)
        return Committed(base, self._log_start(log) if log is not None else 0, duplicate=True)

    def _partition(self, batch: CommitBatch) -> PartitionLog | None:
        topic = self.state.topics.by_id.get(batch.topic_id)
        if topic is None or batch.topic_id in self.overlay.deleted:
            return None
        if not 0 <= batch.partition < len(topic.partitions):
            return None
        return topic.partitions[batch.partition]

    def _log_start(self, log: PartitionLog) -> int:
        return self.overlay.log_start.get(log.number, log.log_start)

    def _next_offset(self, log: PartitionLog) -> int:
        return self.overlay.next_offset.get(log.number, log.high_watermark)

    def _sequence(self, log: PartitionLog, batch: CommitBatch) -> Committed | Refused | None:
        """None for the next batch in sequence, which is noted; else the answer."""
        key = (log.number, batch.producer_id)
        pending = self.overlay.producers.get(key)
        producer = pending or log.producers.get(batch.producer_id)
        last = add_sequence(batch.base_sequence, batch.record_count - 1)
        verdict = judge(producer, batch.producer_epoch, batch.base_sequence, last)
        match verdict:
            case Repeat(base_offset=base):
                return Committed(base, self._log_start(log), duplicate=True)
            case OutOfOrder(expected=expected):
                return Refused(
                    "OUT_OF_ORDER_SEQUENCE_NUMBER",
                    f"sequence {batch.base_sequence} came where {expected} was expected",
                )
            case Fenced(current_epoch=epoch):
                return Refused("INVALID_PRODUCER_EPOCH", f"the producer's epoch is {epoch} by now")
        if pending is None:
            pending = producer.copy() if producer is not None else ProducerState(batch.producer_epoch)
            self.overlay.producers[key] = pending
        pending.record(batch.producer_epoch, batch.base_sequence, last, self._next_offset(log), 0)
        return None

    def _accept(self, log: PartitionLog, batch: CommitBatch) -> Committed:
        base = self._next_offset(log)
        self.overlay.next_offset[log.number] = base + batch.record_count
        self.overlay.repeats[(self.locator, batch.start)] = base
        run = self.runs[-1] if self.runs else None
        if run is None or run.number != log.number or run.end != batch.start:
            run = _OpenRun(log.number, batch.start, base)
            self.runs.append(run)
        run.end = batch.start + batch.size
        run.last = base + batch.record_count - 1
        run.max_timestamp = max(run.max_timestamp, batch.max_timestamp)
        run.count += 1
        self.batches.append(
            (
                batch.size,
                batch.record_count,
                batch.max_timestamp,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.attributes,
            )
        )
        return Committed(base, self._log_start(log))
