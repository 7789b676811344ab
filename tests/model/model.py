"""The results that a ledger must give, kept in lists: no runs, no columns, no bytes, nothing ever joined."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledger.errors import ErrorName
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.uploads import Upload
from ledger.partitions.records import ProducersExpired, RunsDropped
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    Committed,
    DeleteRecords,
    DrainRuns,
    ExpireProducers,
    FileCommit,
    LowWatermark,
    ProducerKey,
    Reserved,
    ReserveProducerIds,
    StaleObject,
)
from ledger.records import MetadataRecord
from ledger.requests import Done, LedgerResult, Refused, Request
from ledger.settings.configs import Altered, ConfigOp
from ledger.state import LedgerState
from ledger.swaps.requests import ReleasePin, SwapSegments, TakePin
from ledger.topics.requests import (
    AddPartitions,
    AlterTopicConfigs,
    Created,
    CreateTopic,
    Deleted,
    DeleteTopic,
    Grown,
)
from ledger.types import TopicId
from tests.model.groups import ModelGroups
from tests.model.swaps import ModelSwaps, SwapsOfAnEntry

REMEMBERED = 5
SEQUENCES = 1 << 31
UNKNOWN = ErrorName.UNKNOWN_TOPIC_OR_PARTITION

Place = tuple[str, int]
"""(locator, start) of a batch."""


@dataclass(frozen=True, slots=True)
class ModelBatch:
    base: int
    records: int
    place: Place
    max_timestamp: int


@dataclass(slots=True)
class ModelProducer:
    """`batches`: (first sequence, last sequence, base offset), all there ever were in this epoch."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    last_ms: int = 0


@dataclass(slots=True)
class ModelPartition:
    batches: list[ModelBatch] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    durable_end: int = 0
    producers: dict[int, ModelProducer] = field(default_factory=dict)


@dataclass(slots=True)
class ModelTopic:
    topic_id: TopicId
    partitions: list[ModelPartition]
    configs: dict[str, str]


class Model:
    """Judges the results of one entry after the other. The only thing that it takes from the real state
    is which objects are closed; that has invariants of its own."""

    def __init__(self) -> None:
        self.topics: dict[str, ModelTopic] = {}
        self.groups = ModelGroups()
        self.swaps = ModelSwaps()
        self.floor_ms = 0
        self.next_producer_id = 0
        self.sizes: dict[Place, int] = {}
        """Bytes of every batch of an object whose bytes are still there."""
        self.first_results: dict[Place, int] = {}
        self.draft_of: dict[Place, int] = {}
        """Of batches of the one uploader."""
        self.settled = 0
        self.newest_ms = -1
        """No object of the uploader is newer, as long as the ledger knows of it."""
        self.created_ms: dict[str, int] = {}

    def judge_entry(
        self,
        state: LedgerState,
        requests: Sequence[Request],
        results: Sequence[LedgerResult],
        records: Sequence[Sequence[MetadataRecord]],
        now_ms: int,
    ) -> None:
        """Check the results of an entry that is not applied yet, and note what it says."""
        entry = _Entry(self, state, now_ms)
        for request, result, written in zip(requests, results, records, strict=True):
            entry.judge(request, result, written)
        entry.end()

    def partitions(self) -> list[ModelPartition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def settle(self, event: tuple[Upload, int] | int) -> None:
        """A commit of the uploader (with the time of its object), or a floor that was raised."""
        if isinstance(event, int):
            if self.newest_ms < event:
                self.settled, self.newest_ms = 0, -1
            return
        upload, newest_ms = event
        self.newest_ms = max(self.newest_ms, newest_ms)
        self.settled = max(self.settled, upload.settled)
        kept = self.first_results.items()
        self.first_results = {p: b for p, b in kept if self.draft_of.get(p, math.inf) > self.settled}

    def forget(self, locators: set[str]) -> None:
        """The bytes of these objects are gone."""
        for place in [place for place in self.sizes if place[0] in locators]:
            del self.sizes[place]
            self.first_results.pop(place, None)


class _Entry:
    """One entry: what was durable before it, and what it decided so far."""

    def __init__(self, model: Model, state: LedgerState, now_ms: int) -> None:
        self.model = model
        self.state = state
        self.now_ms = now_ms
        self.known = dict(model.topics)
        self.by_id = {topic.topic_id: topic for topic in model.topics.values()}
        self.partitions_before = {id_: len(topic.partitions) for id_, topic in self.by_id.items()}
        self.deleted: set[TopicId] = set()
        self.losing_runs: set[int] = set()
        self.swaps = SwapsOfAnEntry(model.swaps, state, now_ms)
        self.first_result_of = dict(model.first_results)
        self.committed: set[tuple[int, int]] = set()
        self.uploads: list[tuple[Upload, int] | int] = []
        """What was committed of the uploader, with the times of its objects, and floors, in order."""
        self.draft_of = model.draft_of
        self.settled = model.settled
        self.expired: dict[tuple[int, int], int] = {}
        """(id of the partition, producer id) -> how many of its batches it had by then."""

    def end(self) -> None:
        self.swaps.end()
        for partition in self.model.partitions():
            partition.durable_end = partition.end
            for producer_id in list(partition.producers):
                gone = self.expired.get((id(partition), producer_id))
                if gone is not None:
                    del partition.producers[producer_id].batches[:gone]
                    if not partition.producers[producer_id].batches:
                        del partition.producers[producer_id]
        floor = self.model.floor_ms
        kept = self.model.created_ms
        self.model.first_results = {p: b for p, b in self.first_result_of.items() if kept[p[0]] >= floor}
        for event in self.uploads:
            self.model.settle(event)

    def judge(self, request: Request, result: LedgerResult, written: Sequence[MetadataRecord]) -> None:  # noqa: C901 - one case a request
        match request:
            case CreateTopic():
                self._create(request, result)
            case AddPartitions():
                self._add_partitions(request, result)
            case AlterTopicConfigs():
                self._alter(request, result)
            case DeleteTopic():
                self._delete(request, result)
            case CommitFile():
                self._commit(request, result)
                if written and request.upload is not None:
                    newest_ms = max(self.model.created_ms[request.locator], self.now_ms)
                    self.uploads.append((request.upload, newest_ms))
                    self.settled = max(self.settled, request.upload.settled)
            case DeleteRecords():
                assert result == self._delete_records(request)
            case ReserveProducerIds(count=count):
                assert result == Reserved(self.model.next_producer_id, count)
                self.model.next_producer_id += count
            case DrainRuns():
                self._drain(request, result, written)
            case ExpireProducers():
                self._expire(request, result, written)
            case TakePin() | ReleasePin():
                self.swaps.judge_pin(request, result)
            case SwapSegments():
                partition = self._partition(request.topic_id, request.partition)
                log_start = partition.log_start if partition is not None else None
                self.losing_runs |= self.swaps.judge(request, result, log_start)
            case RaiseFloor(floor_ms=asked_ms):
                floor = min(asked_ms, self.model.swaps.oldest_ms)
                assert result == Done(int(floor > self.model.floor_ms))
                self.model.floor_ms = max(floor, self.model.floor_ms)
                self.uploads.append(self.model.floor_ms)
            case ForgetObjects(objects=objects):
                assert result == Done(len(objects))
            case _:
                self.model.groups.judge(
                    request,
                    result,
                    written,
                    self.now_ms,
                    lambda topic_id, at: self._partition(topic_id, at) is not None,
                    self.by_id,
                )

    def _create(self, request: CreateTopic, result: LedgerResult) -> None:
        if request.name in self.model.topics:
            assert isinstance(result, Refused) and result.error == "TOPIC_ALREADY_EXISTS"
            return
        assert result == Created(request.topic_id)
        fresh = [ModelPartition() for _ in range(request.partitions)]
        self.model.topics[request.name] = ModelTopic(request.topic_id, fresh, dict(request.configs))

    def _add_partitions(self, request: AddPartitions, result: LedgerResult) -> None:
        topic = self._durable(request.topic_id)
        if topic is None or request.total <= len(topic.partitions):
            error = UNKNOWN if topic is None else "INVALID_PARTITIONS"
            assert isinstance(result, Refused) and result.error == error
            return
        assert result == Grown(request.total)
        topic.partitions += [ModelPartition() for _ in range(request.total - len(topic.partitions))]

    def _alter(self, request: AlterTopicConfigs, result: LedgerResult) -> None:
        topic = self._durable(request.topic_id)
        if topic is None:
            assert result == Refused(UNKNOWN)
            return
        if request.replace:
            topic.configs.clear()
        for change in request.changes:
            assert change.op in (ConfigOp.SET, ConfigOp.DELETE)
            topic.configs.pop(change.name, None)
            if change.op is ConfigOp.SET:
                topic.configs[change.name] = change.value
        assert result == Altered(topic.configs)

    def _delete(self, request: DeleteTopic, result: LedgerResult) -> None:
        topic = self._durable(request.topic_id)
        if topic is None:
            assert result == Refused(ErrorName.UNKNOWN_TOPIC_ID)
            return
        assert result == Deleted()
        self.deleted.add(request.topic_id)
        self.model.topics = {n: t for n, t in self.model.topics.items() if t is not topic}

    def _durable(self, topic_id: TopicId) -> ModelTopic | None:
        """A topic made in this very entry is not there yet; one deleted in it is there no more."""
        return None if topic_id in self.deleted else self.by_id.get(topic_id)

    def _partition(self, topic_id: TopicId, index: int) -> ModelPartition | None:
        topic = self._durable(topic_id)
        # A partition added in this very entry is not there yet either.
        if topic is None or not 0 <= index < self.partitions_before[topic.topic_id]:
            return None
        return topic.partitions[index]

    def _delete_records(self, request: DeleteRecords) -> LedgerResult:
        partition = self._partition(request.topic_id, request.partition)
        if partition is None:
            return Refused(UNKNOWN)
        wanted = partition.durable_end if request.offset == -1 else request.offset
        if not 0 <= wanted <= partition.durable_end:
            return Refused(ErrorName.OFFSET_OUT_OF_RANGE)
        partition.log_start = max(partition.log_start, wanted)
        return LowWatermark(partition.log_start)

    def _drain(self, request: DrainRuns, result: LedgerResult, written: Sequence[MetadataRecord]) -> None:
        dropped = 0
        for record in written:
            assert isinstance(record, RunsDropped)
            log = self.state.logs[record.number]
            self.swaps.busy.add((log.topic_id, log.index))
            going = list(log.runs())[: record.count]
            self.losing_runs.update(run.object_number for run in going)
            dropped += record.count
        assert dropped <= request.limit
        assert result == Done(dropped)

    def _expire(
        self, request: ExpireProducers, result: LedgerResult, written: Sequence[MetadataRecord]
    ) -> None:
        pairs = [pair for record in written if isinstance(record, ProducersExpired) for pair in record.pairs]
        assert result == Done(len(pairs)) and len(pairs) <= request.limit
        due = {
            (topic.topic_id, index, producer_id)
            for topic in self.known.values()
            for index, partition in enumerate(topic.partitions)
            for producer_id, producer in partition.producers.items()
            if producer.last_ms < request.before_ms and (id(partition), producer_id) not in self.committed
        }
        named = set()
        for number, producer_id in pairs:
            log = self.state.logs[number]
            named.add((log.topic_id, log.index, producer_id))
        assert named <= due
        assert named == due or len(pairs) == request.limit
        for topic_id, index, producer_id in named:
            partition = self.by_id[topic_id].partitions[index]
            gone = len(partition.producers[producer_id].batches)
            self.expired.setdefault((id(partition), producer_id), gone)

    def _commit(self, request: CommitFile, result: LedgerResult) -> None:
        upload = request.upload
        if upload is not None and upload.draft <= self.settled:
            assert isinstance(result, FileCommit)
            assert [getattr(each, "error", None) for each in result.results] == [
                ErrorName.REQUEST_TIMED_OUT
            ] * len(request.batches)
            return
        if upload is not None:
            self.draft_of.update(((request.locator, batch.start), upload.draft) for batch in request.batches)
        known = self.state.objects.by_locator.get(request.locator)
        closing = known is not None and (known.closed or known.number in self.losing_runs)
        if closing or self.model.created_ms[request.locator] < self.model.floor_ms:
            self._late_commit(request, result)
            return
        assert isinstance(result, FileCommit)
        for batch, committed in zip(request.batches, result.results, strict=True):
            place = (request.locator, batch.start)
            base = self.first_result_of.get(place)
            if base is not None:
                assert committed == Committed(base, self._log_start(batch), duplicate=True)
            else:
                self._batch(place, batch, committed, request.first_sequences or {})

    def _late_commit(self, request: CommitFile, result: LedgerResult) -> None:
        """Nothing new is taken from an object too old or closed; repeats get their first results."""
        firsts = [self.first_result_of.get((request.locator, batch.start)) for batch in request.batches]
        if any(base is None for base in firsts):
            assert result == StaleObject()
            return
        assert isinstance(result, FileCommit)
        assert result.results == [
            Committed(base, self._log_start(batch), duplicate=True)
            for base, batch in zip(firsts, request.batches, strict=True)
            if base is not None
        ]

    def _log_start(self, batch: CommitBatch) -> int:
        partition = self._partition(batch.topic_id, batch.partition)
        return partition.log_start if partition is not None else 0

    def _batch(
        self,
        place: Place,
        batch: CommitBatch,
        result: Committed | Refused,
        first_sequences: Mapping[ProducerKey, int],
    ) -> None:
        partition = self._partition(batch.topic_id, batch.partition)
        verdict = UNKNOWN if partition is None else expected(partition, batch, first_sequences)
        if partition is None or isinstance(verdict, str):
            assert isinstance(result, Refused) and result.error == verdict, (verdict, result)
            return
        if verdict is not None:
            assert result == Committed(verdict, partition.log_start, duplicate=True)
            return
        assert result == Committed(partition.end, partition.log_start)
        self._take(partition, place, batch)

    def _take(self, partition: ModelPartition, place: Place, batch: CommitBatch) -> None:
        base = partition.end
        partition.batches.append(ModelBatch(base, batch.record_count, place, batch.max_timestamp))
        self.swaps.grown.add((batch.topic_id, batch.partition))
        partition.end += batch.record_count
        self.first_result_of[place] = base
        self.model.sizes[place] = batch.size
        if batch.producer_id < 0:
            return
        key = (id(partition), batch.producer_id)
        self.committed.add(key)
        producer = partition.producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = partition.producers[batch.producer_id] = ModelProducer(batch.producer_epoch)
            if key in self.expired:
                self.expired[key] = 0
        producer.batches.append((batch.base_sequence, last_sequence(batch), base))
        producer.last_ms = self.now_ms


def last_sequence(batch: CommitBatch) -> int:
    return (batch.base_sequence + batch.record_count - 1) % SEQUENCES


def expected(
    partition: ModelPartition, batch: CommitBatch, first_sequences: Mapping[ProducerKey, int]
) -> str | int | None:
    """An error, the first result for a repeat, or None for a batch to be accepted."""
    known = partition.producers.get(batch.producer_id)
    if batch.producer_id < 0:
        return None
    if known is None:
        key = (batch.topic_id, batch.partition, batch.producer_id, batch.producer_epoch)
        ahead = (batch.base_sequence - first_sequences.get(key, batch.base_sequence)) % SEQUENCES
        return None if ahead == 0 or ahead > SEQUENCES // 2 - 1 else "OUT_OF_ORDER_SEQUENCE_NUMBER"
    if batch.producer_epoch < known.epoch:
        return "INVALID_PRODUCER_EPOCH"
    if batch.producer_epoch > known.epoch:
        return None if batch.base_sequence == 0 else "OUT_OF_ORDER_SEQUENCE_NUMBER"
    for first, last, base in known.batches[-REMEMBERED:]:
        if (first, last) == (batch.base_sequence, last_sequence(batch)):
            return base
    following = (known.batches[-1][1] + 1) % SEQUENCES
    return None if batch.base_sequence == following else "OUT_OF_ORDER_SEQUENCE_NUMBER"
