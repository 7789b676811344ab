"""The content of an offline ledger, as values: the output of `dragoman ledger show`."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gateway.coordination.recovery import Recovered, snapshot_keys
from gateway.offline.backup import all_objects
from ledger.groups.state import NO_GENERATION
from ledger.keys import adopted_place
from ledger.objects.state import ADOPTED_STORE, ObjectState
from ledger.partitions.state import PartitionLog
from ledger.ports import Blobs, Journal, SegmentStore
from ledger.state import LedgerState
from ledger.topics.state import Topic
from ledger.types import StoredObject


@dataclass(frozen=True, slots=True)
class PartitionInspection:
    partition: int
    log_start_offset: int
    high_watermark: int
    runs: int
    size_bytes: int
    producers: int


@dataclass(frozen=True, slots=True)
class TopicInspection:
    name: str
    topic_id: str
    """In hex; as `topics describe` prints it: `topic_uuid`."""
    topic_uuid: str
    created_ms: int
    configs: Mapping[str, str]
    partitions: list[PartitionInspection]


@dataclass(frozen=True, slots=True)
class GroupInspection:
    """`generation` -1: a group that only has offsets."""

    group_id: str
    protocol_type: str
    generation: int
    members: int
    committed_offsets: int


@dataclass(frozen=True, slots=True)
class QuotaInspection:
    """`entity` by type; the name None means the default of that type."""

    entity: Mapping[str, str | None]
    quotas: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ConfigInspection:
    resource_type: str
    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JournalInspection:
    """Entries [start, end) are in the metadata store; a state begins from `recovered_from`."""

    start: int
    end: int
    epoch: int
    cluster_epoch: int
    last_entry_ms: int
    recovered_from: str
    snapshots: list[str]


@dataclass(frozen=True, slots=True)
class ObjectsInspection:
    """Counts; `orphans`: stored and named by no entry, of which `kept` are never deleted because they may
    hold what was acknowledged after the backup that a restore began from."""

    live: int
    live_bytes: int
    garbage: int
    garbage_bytes: int
    orphans: list[str]
    kept: list[str]
    floor_ms: int
    adopted_bytes: dict[str, int]
    """By the URL of each bucket that topics were adopted from: what of it is still read. It may go when a
    merge has copied that."""


@dataclass(frozen=True, slots=True)
class Inspection:
    shard: int
    cluster_id: str
    feature_level: int
    journal: JournalInspection
    objects: ObjectsInspection
    topics: list[TopicInspection]
    groups: list[GroupInspection]
    quotas: list[QuotaInspection]
    configs: list[ConfigInspection]


async def inspect_ledger(
    journal: Journal, recovered: Recovered, blobs: Blobs, segments: SegmentStore
) -> Inspection:
    """Read everything once. StoreUnavailable if a store cannot be reached."""
    state = recovered.state
    topics = sorted(state.topics.by_name.values(), key=lambda topic: topic.name)
    return Inspection(
        journal.shard,
        state.cluster_id,
        state.feature_level,
        JournalInspection(
            await journal.start(),
            state.applied,
            state.epoch,
            state.cluster_epoch,
            state.entry_time_ms,
            recovered.source,
            await snapshot_keys(blobs, journal.shard),
        ),
        _objects(state, [found async for found in all_objects(segments)]),
        [_topic(topic) for topic in topics],
        [_group(state, group_id) for group_id in sorted({*state.groups.by_id, *state.groups.offsets})],
        [QuotaInspection(dict(entity), values) for entity, values in state.quotas.by_entity.items()],
        [
            ConfigInspection(*key, configs)
            for key, configs in sorted(state.resource_configs.by_resource.items())
        ],
    )


def _topic(topic: Topic) -> TopicInspection:
    partitions = [_partition(log) for log in topic.partitions]
    return TopicInspection(
        topic.name,
        topic.topic_id.hex(),
        str(uuid.UUID(bytes=topic.topic_id)),
        topic.created_ms,
        topic.configs,
        partitions,
    )


def _group(state: LedgerState, group_id: str) -> GroupInspection:
    group = state.groups.by_id.get(group_id)
    offsets = len(state.groups.offsets.get(group_id, ()))
    if group is None:
        return GroupInspection(group_id, "", NO_GENERATION, 0, offsets)
    return GroupInspection(group_id, group.protocol_type, group.generation, len(group.members), offsets)


def _partition(log: PartitionLog) -> PartitionInspection:
    return PartitionInspection(
        log.index, log.log_start, log.high_watermark, log.run_count, log.size_bytes, len(log.producers)
    )


def _objects(state: LedgerState, stored: list[StoredObject]) -> ObjectsInspection:
    objects = state.objects
    live = [known for known in objects.by_number.values() if not known.closed]
    # What is there now: a file of the log has grown by frames that are in no object's size.
    sizes = {found.locator: found.size for found in stored}
    orphans = [found for found in stored if found.locator not in objects.by_locator]
    return ObjectsInspection(
        len(live),
        sum(sizes.get(known.locator, known.size) for known in live),
        len(objects.garbage),
        sum(sizes.get(known.locator, known.size) for known in objects.garbage.values()),
        [found.locator for found in orphans],
        [found.locator for found in orphans if objects.keeps(found.created_ms)],
        objects.floor_ms,
        _adopted_bytes(live),
    )


def _adopted_bytes(live: Iterable[ObjectState]) -> dict[str, int]:
    by_place: Counter[str] = Counter()
    for known in live:
        if known.store == ADOPTED_STORE:
            by_place[adopted_place(known.locator)[0]] += known.size
    return dict(sorted(by_place.items()))
