"""The model of transactions: partitions are lists of slots, and readers walk them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.groups.requests import CommitOffsets, OffsetsStored, RemoveGroup, RemoveOffsets
from ledger.groups.state import OffsetRow
from ledger.partitions.requests import CommitBatch, CommitFile, Committed, FileCommit
from ledger.requests import Done, LedgerResult, Refused, Request
from ledger.topics.requests import Deleted, DeleteTopic
from ledger.transactions.requests import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    ExpireTransactionalIds,
    InitTransactionalId,
    MarkersWritten,
    PendOffsets,
    ProducerEpoch,
    WriteMarkers,
)
from ledger.types import TopicId

Place = tuple[TopicId, int]
OffsetKey = tuple[str, Place]
"""Group, and whose offset."""
REMEMBERED = 5
NONE = -1
EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"
UNKNOWN = ErrorName.UNKNOWN_TOPIC_OR_PARTITION


@dataclass(frozen=True, slots=True)
class Marker:
    """In the place of a record."""

    producer_id: int
    epoch: int
    is_commit: bool


@dataclass(slots=True)
class ModelLog:
    """One slot an offset: the producer of a record, or a marker. `open`: the records of each producer whose
    fate is open; `committed`: those that readers of committed records see, up to the last stable offset."""

    slots: list[int | Marker] = field(default_factory=list)
    log_start: int = 0
    producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    """Epoch, and (first sequence, last sequence, base offset) of all batches in it."""
    open: dict[int, list[int]] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)

    @property
    def last_stable(self) -> int:
        first = min((offsets[0] for offsets in self.open.values()), default=len(self.slots))
        return max(first, self.log_start)

    def mark(self, marker: Marker) -> None:
        self.slots.append(marker)
        ended = self.open.pop(marker.producer_id, [])
        if marker.is_commit:
            self.committed.update(ended)
        known = self.producers.get(marker.producer_id)
        if known is None or marker.epoch > known[0]:
            self.producers[marker.producer_id] = marker.epoch, []

    def take(self, batch: CommitBatch) -> int:
        """Returns its base offset."""
        base = len(self.slots)
        offsets = list(range(base, base + batch.record_count))
        self.slots += [batch.producer_id] * batch.record_count
        if batch.attributes & TRANSACTIONAL_BIT:
            self.open.setdefault(batch.producer_id, []).extend(offsets)
        else:
            self.committed.update(offsets)
        if batch.producer_id >= 0:
            epoch, batches = self.producers.get(batch.producer_id, (NONE, []))
            kept = batches if epoch == batch.producer_epoch else []
            first = batch.base_sequence
            made = [*kept, (first, first + batch.record_count - 1, base)]
            self.producers[batch.producer_id] = batch.producer_epoch, made
        return base


@dataclass(slots=True)
class ModelId:
    """A transactional id."""

    producer_id: int
    epoch: int
    last_epoch: int
    updated_ms: int
    status: str = EMPTY
    started_ms: int = NONE
    places: dict[Place, None] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    pending: dict[OffsetKey, tuple[int, OffsetRow]] = field(default_factory=dict)
    """With the order in which they came."""

    @property
    def is_open(self) -> bool:
        return self.status == ONGOING


class TransactionsModel:
    """Judges the results of requests one after the other; those of one entry see each other."""

    def __init__(self) -> None:
        self.topics: dict[TopicId, list[ModelLog]] = {}
        self.ids: dict[str, ModelId] = {}
        self.offsets: dict[OffsetKey, tuple[int, int]] = {}
        """(order, offset)"""
        self.ends = 0
        self._next_producer_id = 0
        self._order = 0

    def log(self, place: Place) -> ModelLog | None:
        topic = self.topics.get(place[0])
        return topic[place[1]] if topic is not None and 0 <= place[1] < len(topic) else None

    def judge(self, request: Request, result: LedgerResult, now_ms: int) -> None:
        judges: dict[type, Callable[..., None]] = {
            InitTransactionalId: self._init,
            AddToTransaction: self._add,
            CommitFile: self._commit,
            PendOffsets: self._pend,
            EndTransaction: self._end,
            AbortTransaction: self._abort,
            WriteMarkers: self._write_markers,
            ExpireTransactionalIds: self._expire,
            CommitOffsets: self._commit_offsets,
            RemoveOffsets: self._remove_offsets,
            RemoveGroup: self._remove_group,
            DeleteTopic: self._delete_topic,
        }
        judges[type(request)](request, result, now_ms)

    # Ids

    def _init(self, request: InitTransactionalId, result: LedgerResult, now_ms: int) -> None:
        known = self.ids.get(request.transactional_id)
        if known is None:
            known = ModelId(self._next_producer_id, 0, NONE, now_ms)
            self._next_producer_id += 1
            self.ids[request.transactional_id] = known
            assert result == ProducerEpoch(known.producer_id, 0)
            return
        expected = request.expected
        if expected is not None and expected.producer_id != known.producer_id:
            assert error(result) == ErrorName.PRODUCER_FENCED
            return
        aborted = known.is_open
        if aborted:
            self._fence(known, now_ms)
        if expected is None:
            known.epoch, known.last_epoch = known.epoch + 1, NONE
        elif expected.epoch == known.epoch:
            known.epoch, known.last_epoch = known.epoch + 1, known.epoch
        elif expected.epoch != known.last_epoch:
            assert error(result) == ErrorName.PRODUCER_FENCED
            return
        known.status, known.started_ms, known.updated_ms = EMPTY, NONE, now_ms
        assert result == ProducerEpoch(known.producer_id, known.epoch, aborted)

    def _fence(self, known: ModelId, now_ms: int) -> None:
        self._close(known, known.epoch + 1, is_commit=False, now_ms=now_ms)
        known.epoch, known.last_epoch = known.epoch + 1, known.epoch

    def _close(self, known: ModelId, marker_epoch: int, *, is_commit: bool, now_ms: int) -> None:
        self.ends += 1
        for place in known.places:
            log = self.log(place)
            if log is not None:
                log.mark(Marker(known.producer_id, marker_epoch, is_commit))
        for key, (order, row) in known.pending.items():
            is_there = key[1][0] in self.topics
            if is_commit and is_there and order > self.offsets.get(key, (NONE, NONE))[0]:
                self.offsets[key] = order, row.offset
        known.places, known.groups, known.pending = {}, set(), {}
        known.status, known.updated_ms = COMMITTED if is_commit else ABORTED, now_ms

    def _expire(self, request: ExpireTransactionalIds, result: LedgerResult, now_ms: int) -> None:
        due = [
            name
            for name in dict.fromkeys(request.names)
            if name in self.ids
            and not self.ids[name].is_open
            and self.ids[name].updated_ms < request.before_ms
        ]
        assert result == Done(len(due))
        for name in due:
            del self.ids[name]

    # What a transaction has

    def _open(self, known: ModelId, now_ms: int) -> None:
        if not known.is_open:
            known.status, known.started_ms, known.updated_ms = ONGOING, now_ms, now_ms

    def _add(self, request: AddToTransaction, result: LedgerResult, now_ms: int) -> None:
        known = self.ids.get(request.transactional_id)
        places = [(each.topic_id, each.partition) for each in request.partitions]
        if known is None or known.producer_id != request.producer_id:
            assert error(result) == ErrorName.INVALID_PRODUCER_ID_MAPPING
        elif known.epoch != request.epoch:
            assert error(result) == ErrorName.PRODUCER_FENCED
        elif any(self.log(place) is None for place in places):
            assert error(result) == UNKNOWN
        else:
            new = [place for place in dict.fromkeys(places) if place not in known.places]
            groups = set(request.groups) - known.groups
            assert result == Done(len(new) + len(groups))
            self._open(known, now_ms)
            known.places.update(dict.fromkeys(new))
            known.groups |= groups

    def _commit(self, request: CommitFile, result: LedgerResult, now_ms: int) -> None:
        assert isinstance(result, FileCommit)
        for batch, each in zip(request.batches, result.results, strict=True):
            log = self.log((batch.topic_id, batch.partition))
            if log is None:
                assert error(each) == UNKNOWN
                continue
            claimed = (request.transactions or {}).get(batch.start)
            refusal, begins_at_zero = None, False
            if claimed is not None:
                refusal = self._claim(claimed.transactional_id, batch, now_ms, adds=claimed.adds)
                begins_at_zero = claimed.adds
            verdict = refusal or sequenced(log, batch, begins_at_zero=begins_at_zero)
            if isinstance(verdict, str):
                assert error(each) == verdict, (each, verdict)
            elif verdict is not None:
                assert each == Committed(verdict, log.log_start, duplicate=True)
            else:
                assert each == Committed(log.take(batch), log.log_start)

    def _claim(self, name: str, batch: CommitBatch, now_ms: int, *, adds: bool) -> str | None:
        """Why the batch may not go into the transaction."""
        known, place = self.ids.get(name), (batch.topic_id, batch.partition)
        if known is None or known.producer_id != batch.producer_id:
            return ErrorName.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != batch.producer_epoch:
            return ErrorName.INVALID_PRODUCER_EPOCH
        if place not in known.places:
            if not adds:
                return ErrorName.TRANSACTION_ABORTABLE
            self._open(known, now_ms)
            known.places[place] = None
        return None

    def _pend(self, request: PendOffsets, result: LedgerResult, now_ms: int) -> None:
        known = self.ids.get(request.transactional_id)
        if known is None or known.producer_id != request.producer_id:
            assert error(result) == ErrorName.INVALID_PRODUCER_ID_MAPPING
        elif known.epoch != request.epoch:
            assert error(result) == ErrorName.INVALID_PRODUCER_EPOCH
        elif not request.adds and request.group_id not in known.groups:
            assert error(result) == ErrorName.INVALID_TXN_STATE
        else:
            self._open(known, now_ms)
            known.groups.add(request.group_id)
            for row in self._stored(request.rows, result):
                self._order += 1
                known.pending[request.group_id, (row.topic_id, row.partition)] = self._order, row

    def _stored(self, rows: Sequence[OffsetRow], result: LedgerResult) -> list[OffsetRow]:
        there = [self.log((row.topic_id, row.partition)) is not None for row in rows]
        assert result == OffsetsStored([None if known else Refused(UNKNOWN) for known in there])
        return [row for row, known in zip(rows, there, strict=True) if known]

    # How it ends

    def _end(self, request: EndTransaction, result: LedgerResult, now_ms: int) -> None:
        known, wanted = self.ids.get(request.transactional_id), COMMITTED if request.is_commit else ABORTED
        if known is None or known.producer_id != request.producer_id:
            assert error(result) == ErrorName.INVALID_PRODUCER_ID_MAPPING
            return
        present = ProducerEpoch(known.producer_id, known.epoch, ended_before=True)
        if request.bumps and request.epoch == known.epoch - 1:
            if known.status in (EMPTY, ONGOING):
                assert error(result) == ErrorName.PRODUCER_FENCED
            else:
                assert result == (present if known.status == wanted else Refused(ErrorName.INVALID_TXN_STATE))
        elif request.epoch != known.epoch:
            assert error(result) == ErrorName.PRODUCER_FENCED
        elif known.is_open:
            self._close(known, known.epoch + request.bumps, is_commit=request.is_commit, now_ms=now_ms)
            if request.bumps:
                known.epoch, known.last_epoch = known.epoch + 1, known.epoch
            assert result == ProducerEpoch(known.producer_id, known.epoch)
        elif request.bumps and not request.is_commit:
            known.epoch, known.last_epoch = known.epoch + 1, known.epoch
            known.status, known.started_ms, known.updated_ms = ABORTED, now_ms, now_ms
            assert result == ProducerEpoch(known.producer_id, known.epoch, ended_before=True)
        elif request.bumps or known.status != wanted:
            assert error(result) == ErrorName.INVALID_TXN_STATE
        else:
            assert result == present

    def _abort(self, request: AbortTransaction, result: LedgerResult, now_ms: int) -> None:
        known = self.ids.get(request.transactional_id)
        named = request.producer_id, request.epoch, request.started_ms
        is_it = (
            known is not None
            and known.is_open
            and (known.producer_id, known.epoch, known.started_ms) == named
        )
        assert result == Done(int(is_it))
        if known is not None and is_it:
            self._fence(known, now_ms)

    def _write_markers(self, request: WriteMarkers, result: LedgerResult, now_ms: int) -> None:
        expected: list[str | None] = []
        marked: list[ModelLog] = []
        for partition in request.partitions:
            log = self.log((partition.topic_id, partition.partition))
            known = None if log is None else log.producers.get(request.producer_id)
            needed = NONE
            if log is not None and known is not None:
                needed = known[0] + (request.bumps and request.producer_id in log.open)
            if log is None:
                expected.append(UNKNOWN)
            elif log not in marked and request.epoch < needed:
                expected.append(ErrorName.INVALID_PRODUCER_EPOCH)
            else:
                expected.append(None)
                if not any(log is other for other in marked):
                    marked.append(log)
        assert result == MarkersWritten(expected)
        for log in marked:
            log.mark(Marker(request.producer_id, request.epoch, request.is_commit))

    # Without transactions

    def _commit_offsets(self, request: CommitOffsets, result: LedgerResult, now_ms: int) -> None:
        for row in self._stored(request.rows, result):
            self._order += 1
            self.offsets[request.group_id, (row.topic_id, row.partition)] = self._order, row.offset

    def _remove_offsets(self, request: RemoveOffsets, result: LedgerResult, now_ms: int) -> None:
        assert isinstance(result, Done)
        self._forget((request.group_id, key) for key in request.keys)

    def _remove_group(self, request: RemoveGroup, result: LedgerResult, now_ms: int) -> None:
        keys = {*self.offsets, *(key for known in self.ids.values() for key in known.pending)}
        self._forget([key for key in keys if key[0] == request.group_id])

    def _forget(self, keys: Iterable[OffsetKey]) -> None:
        for key in keys:
            self.offsets.pop(key, None)
            for known in self.ids.values():
                known.pending.pop(key, None)

    def _delete_topic(self, request: DeleteTopic, result: LedgerResult, now_ms: int) -> None:
        if self.topics.pop(request.topic_id, None) is None:
            assert error(result) == ErrorName.UNKNOWN_TOPIC_ID
        else:
            assert result == Deleted()


def error(result: object) -> str | None:
    return result.error if isinstance(result, Refused) else None


def sequenced(log: ModelLog, batch: CommitBatch, *, begins_at_zero: bool) -> str | int | None:
    """An error, the first result for a repeat, or None for a batch to be accepted."""
    known = log.producers.get(batch.producer_id)
    first = batch.base_sequence
    if batch.producer_id < 0:
        return None
    if known is None:
        return ErrorName.OUT_OF_ORDER_SEQUENCE_NUMBER if first and begins_at_zero else None
    epoch, batches = known
    if batch.producer_epoch < epoch:
        return ErrorName.INVALID_PRODUCER_EPOCH
    if batch.producer_epoch > epoch:
        return None if first == 0 else ErrorName.OUT_OF_ORDER_SEQUENCE_NUMBER
    for known_first, known_last, base in batches[-REMEMBERED:]:
        if (known_first, known_last) == (first, first + batch.record_count - 1):
            return base
    following = batches[-1][1] + 1 if batches else 0
    return None if first == following else ErrorName.OUT_OF_ORDER_SEQUENCE_NUMBER
