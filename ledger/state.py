"""The durable state of a shard: what its journal says up to the last applied entry.

`apply` of a metadata record is the only thing that changes it, and is deterministic: every gateway that
applies the same entries holds the same state. What changed since the image was last written is noted
in `dirty`; which partitions an entry touched, in `touched`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

from ledger.files import Files
from ledger.group_records import (
    ClientQuotasSet,
    GroupRemoved,
    GroupStored,
    OffsetsCommitted,
    OffsetsRemoved,
    ResourceConfigsSet,
)
from ledger.groups import CommittedOffset, Groups, OffsetKey
from ledger.journal import Entry
from ledger.partitions import PartitionLog, partitions_of
from ledger.producers import MAX_SEQUENCE, UNBOUNDED, ProducerState
from ledger.quotas import ClientQuotas, QuotaEntity, ResourceConfigs, ResourceKey
from ledger.records import (
    ClusterCreated,
    FileCommitted,
    FloorRaised,
    LedgerRestored,
    MetadataRecord,
    ObjectsForgotten,
    OwnerChanged,
    PartitionsAdded,
    ProducerIdsReserved,
    ProducersExpired,
    RecordsDeleted,
    RunsDropped,
    TopicConfigsSet,
    TopicCreated,
    TopicDeleted,
)
from ledger.topics import Topic, Topics
from ledger.types import TopicId


@dataclass(slots=True)
class Dirty:
    """Keys of image rows that no longer say what the state says. The chunks and producers that commits have
    touched are noted in their partitions alone (`PartitionLog.grown_chunks`, `unsaved_producers`)."""

    topics: set[TopicId] = field(default_factory=set)
    partitions: set[int] = field(default_factory=set)
    chunks: set[tuple[int, int]] = field(default_factory=set)
    producers: set[tuple[int, int]] = field(default_factory=set)
    objects: set[int] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: set[tuple[str, OffsetKey]] = field(default_factory=set)
    quotas: set[QuotaEntity] = field(default_factory=set)
    resource_configs: set[ResourceKey] = field(default_factory=set)

    def update(self, other: "Dirty") -> None:
        """What is dirty in either."""
        for each in fields(self):
            getattr(self, each.name).update(getattr(other, each.name))


class LedgerState:
    """Topics, partitions, objects, producers, groups and settings of one shard."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.epoch = 0
        self.applied = 0
        """Entries applied, and so the number of the next."""
        self.entry_time_ms = 0
        self.topics = Topics()
        self.logs: dict[int, PartitionLog] = {}
        """By partition number; deleted partitions stay until their runs are drained."""
        self.draining: dict[int, PartitionLog] = {}
        self.files = Files()
        self.next_number = 0
        self.next_producer_id = 0
        self.producer_count = 0
        """Of all partitions together."""
        self.producer_bounds = UNBOUNDED
        """Set by who decides. What was decided is applied within any bounds."""
        self.restores: list[LedgerRestored] = []
        """Every time that the journal was put back from a backup, the oldest first."""
        self.groups = Groups()
        self.quotas = ClientQuotas()
        self.resource_configs = ResourceConfigs()
        self.dirty = Dirty()
        self.touched: dict[int, PartitionLog] = {}
        self.is_whole = True
        """False once an entry was applied by half, by a bug or for want of memory: nothing may be made of
        this state any more, neither an image nor a snapshot."""

    @property
    def cluster_epoch(self) -> int:
        """1, and one more for every restore from a backup."""
        return 1 + len(self.restores)

    def apply_entry(self, entry: Entry) -> list[PartitionLog]:
        """Apply a durable entry. Returns the partitions whose offsets moved or that were deleted."""
        self.is_whole = False
        self.touched = {}
        self.entry_time_ms = entry.time_ms
        for record in entry.records:
            _APPLY[type(record)](self, record)
        self.applied += 1
        self.is_whole = True
        return list(self.touched.values())

    def apply(self, record: MetadataRecord) -> None:
        _APPLY[type(record)](self, record)

    def _cluster_created(self, record: ClusterCreated) -> None:
        self.cluster_id = record.cluster_id

    def _owner_changed(self, record: OwnerChanged) -> None:
        self.epoch = record.epoch

    def _topic_created(self, record: TopicCreated) -> None:
        topic = Topic(record.name, record.topic_id, [], dict(record.configs), self.entry_time_ms)
        self.topics.add(topic)
        self._grow(topic, record.first_number, record.partitions)

    def _partitions_added(self, record: PartitionsAdded) -> None:
        self._grow(self.topics.by_id[record.topic_id], record.first_number, record.partitions)

    def _grow(self, topic: Topic, first_number: int, count: int) -> None:
        logs = partitions_of(topic.topic_id, first_number, count, len(topic.partitions))
        topic.partitions += logs
        self.topics.version += 1
        self.next_number = first_number + count
        self.dirty.topics.add(topic.topic_id)
        for log in logs:
            self.logs[log.number] = log
            self.dirty.partitions.add(log.number)

    def _topic_configs_set(self, record: TopicConfigsSet) -> None:
        self.topics.by_id[record.topic_id].configs = dict(record.configs)
        self.dirty.topics.add(record.topic_id)

    def _topic_deleted(self, record: TopicDeleted) -> None:
        topic = self.topics.remove(record.topic_id)
        self.groups.topic_deleted(record.topic_id)
        self.dirty.topics.add(record.topic_id)
        for log in topic.partitions:
            log.deleted = True
            self.dirty.producers.update((log.number, producer_id) for producer_id in log.producers)
            self.producer_count -= len(log.producers)
            log.producers = {}
            self.touched[log.number] = log
            self.dirty.partitions.add(log.number)
            if log.run_count:
                self.draining[log.number] = log
            else:
                del self.logs[log.number]
                self.draining.pop(log.number, None)

    def _file_committed(self, record: FileCommitted) -> None:
        stored = self.files.register(record.locator)
        stored.size = max(stored.size, record.object_bytes)
        self.dirty.objects.add(stored.number)
        object_number, logs, touched = stored.number, self.logs, self.touched
        starts: list[int] = []
        bases: list[int] = []
        batches, now_ms = record.batches, self.entry_time_ms
        at = 0
        for number, start, size, base, last, max_timestamp, count in record.runs:
            log = touched[number] = logs[number]
            if log.append(object_number, start, size, base, last, max_timestamp):
                stored.live_runs += 1
            for batch_size, records, _, producer_id, epoch, first, _ in batches[at : at + count]:
                starts.append(start)
                bases.append(base)
                if producer_id >= 0:
                    producer = log.producers.get(producer_id)
                    if producer is None:
                        producer = log.producers[producer_id] = ProducerState(epoch)
                        self.producer_count += 1
                    # The last sequence wraps after 2^31 - 1.
                    producer.record(epoch, first, (first + records - 1) & MAX_SEQUENCE, base, now_ms)
                    log.unsaved_producers.add(producer_id)
                start += batch_size
                base += records
            at += count
        stored.remember_all(starts, bases)
        self.dirty.partitions.update(touched)

    def _records_deleted(self, record: RecordsDeleted) -> None:
        log = self.logs[record.number]
        log.log_start = record.log_start
        self.touched[log.number] = log
        self.dirty.partitions.add(log.number)
        if log.droppable(1):
            self.draining[log.number] = log

    def _runs_dropped(self, record: RunsDropped) -> None:
        log = self.logs[record.number]
        numbers, emptied = log.drop(record.count)
        self.dirty.partitions.add(log.number)
        self.dirty.chunks.update((log.number, serial) for serial in emptied)
        if log.chunks:
            self.dirty.chunks.add((log.number, log.chunks[0].serial))
        self.dirty.objects.update(self.files.release(numbers, self.entry_time_ms))
        if not log.droppable(1):
            del self.draining[log.number]
            if log.deleted:
                del self.logs[log.number]

    def _producer_ids_reserved(self, record: ProducerIdsReserved) -> None:
        self.next_producer_id = record.next_id

    def _producers_expired(self, record: ProducersExpired) -> None:
        for number, producer_id in record.pairs:
            log = self.logs.get(number)
            if log is not None and log.producers.pop(producer_id, None) is not None:
                self.producer_count -= 1
            self.dirty.producers.add((number, producer_id))

    def _objects_forgotten(self, record: ObjectsForgotten) -> None:
        self.files.forget(record.objects)
        self.dirty.objects.update(record.objects)

    def _floor_raised(self, record: FloorRaised) -> None:
        self.dirty.objects.update(state.number for state in self.files.raise_floor(record.floor_ms))

    def _ledger_restored(self, record: LedgerRestored) -> None:
        self.restores.append(record)
        self.files.keep(record.kept_from_ms, record.kept_to_ms)

    def _group_stored(self, record: GroupStored) -> None:
        group = replace(record.group, changed_ms=self.entry_time_ms)
        self.groups.by_id[group.group_id] = group
        self.dirty.groups.add(group.group_id)

    def _offsets_committed(self, record: OffsetsCommitted) -> None:
        group_id, now_ms = record.group_id, self.entry_time_ms
        put, dirty = self.groups.put_offset, self.dirty.offsets
        for topic_id, partition, offset, epoch, expire_ms, metadata in record.rows:
            key = topic_id, partition
            put(group_id, key, CommittedOffset(offset, epoch, metadata, now_ms, expire_ms))
            dirty.add((group_id, key))

    def _offsets_removed(self, record: OffsetsRemoved) -> None:
        for key in record.keys:
            self.groups.remove_offset(record.group_id, key)
            self.dirty.offsets.add((record.group_id, key))

    def _group_removed(self, record: GroupRemoved) -> None:
        self.groups.by_id.pop(record.group_id, None)
        self.dirty.groups.add(record.group_id)
        left = list(self.groups.offsets.get(record.group_id, ()))
        self._offsets_removed(OffsetsRemoved(record.group_id, left))

    def _client_quotas_set(self, record: ClientQuotasSet) -> None:
        self.quotas.put(record.entity, record.values)
        self.dirty.quotas.add(record.entity)

    def _resource_configs_set(self, record: ResourceConfigsSet) -> None:
        resource = record.resource_type, record.name
        self.resource_configs.put(resource, record.configs)
        self.dirty.resource_configs.add(resource)


_APPLY: dict[type, Callable[..., None]] = {
    ClusterCreated: LedgerState._cluster_created,
    OwnerChanged: LedgerState._owner_changed,
    TopicCreated: LedgerState._topic_created,
    TopicDeleted: LedgerState._topic_deleted,
    FileCommitted: LedgerState._file_committed,
    RecordsDeleted: LedgerState._records_deleted,
    RunsDropped: LedgerState._runs_dropped,
    ProducerIdsReserved: LedgerState._producer_ids_reserved,
    ProducersExpired: LedgerState._producers_expired,
    ObjectsForgotten: LedgerState._objects_forgotten,
    FloorRaised: LedgerState._floor_raised,
    PartitionsAdded: LedgerState._partitions_added,
    TopicConfigsSet: LedgerState._topic_configs_set,
    LedgerRestored: LedgerState._ledger_restored,
    GroupStored: LedgerState._group_stored,
    OffsetsCommitted: LedgerState._offsets_committed,
    OffsetsRemoved: LedgerState._offsets_removed,
    GroupRemoved: LedgerState._group_removed,
    ClientQuotasSet: LedgerState._client_quotas_set,
    ResourceConfigsSet: LedgerState._resource_configs_set,
}
