"""Deciding: what a request means, seen against the durable state and what this entry already holds.

A machine only looks; its records change the state once they are durable (`LedgerState.apply_entry`). The
*overlay* carries what was decided for the entry that is being filled, and is thrown away with it: won, its
records are applied; lost, nothing has to be undone.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ledger.commits import decide_commit
from ledger.group_decisions import (
    commit_offsets,
    drain_offsets,
    remove_group,
    remove_offsets,
    store_group,
)
from ledger.overlay import Overlay
from ledger.producers import SILENT_MS
from ledger.records import (
    ClusterCreated,
    FloorRaised,
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
from ledger.requests import (
    AddPartitions,
    Altered,
    AlterTopicConfigs,
    Answer,
    BecomeOwner,
    CommitFile,
    CommitOffsets,
    Created,
    CreateTopic,
    Deleted,
    DeleteRecords,
    DeleteTopic,
    Done,
    DrainOffsets,
    DrainRuns,
    ExpireProducers,
    ForgetObjects,
    ForgetProducers,
    Grown,
    LowWatermark,
    Owner,
    RaiseFloor,
    Refused,
    RemoveGroup,
    RemoveOffsets,
    Request,
    Reserved,
    ReserveProducerIds,
    SetClientQuotas,
    SetResourceConfigs,
    StoreGroup,
)
from ledger.setting_decisions import altered_configs, is_too_long, set_client_quotas, set_resource_configs
from ledger.state import LedgerState
from ledger.topics import Topic
from ledger.types import TopicId

HIGH_WATERMARK = -1


class Decision(NamedTuple):
    """What to make durable, and what to answer once it is."""

    answer: Answer
    records: Sequence[MetadataRecord] = ()


def decide(state: LedgerState, overlay: Overlay, request: Request, now_ms: int) -> Decision:
    """Decide one request. `now_ms` is the time of the entry that will hold the records."""
    return _DECIDE[type(request)](state, overlay, request, now_ms)


def _become_owner(state: LedgerState, overlay: Overlay, request: BecomeOwner, now_ms: int) -> Decision:
    epoch = state.epoch + 1
    changed = OwnerChanged(epoch, request.gateway, request.incarnation)
    if state.applied == 0:
        return Decision(Owner(epoch), (ClusterCreated(request.cluster_id), changed))
    return Decision(Owner(epoch), (changed,))


def _create_topic(state: LedgerState, overlay: Overlay, request: CreateTopic, now_ms: int) -> Decision:
    known = state.topics.by_name.get(request.name)
    there = known is not None and known.topic_id not in overlay.deleted
    if there or request.name in overlay.created:
        return Decision(Refused("TOPIC_ALREADY_EXISTS", f"Topic '{request.name}' already exists."))
    record = TopicCreated(
        request.topic_id, request.name, overlay.next_number, request.partitions, request.configs
    )
    overlay.next_number += request.partitions
    overlay.created.add(request.name)
    return Decision(Created(request.topic_id), (record,))


def _add_partitions(state: LedgerState, overlay: Overlay, request: AddPartitions, now_ms: int) -> Decision:
    topic = _live_topic(state, overlay, request.topic_id)
    if topic is None:
        return Decision(Refused("UNKNOWN_TOPIC_OR_PARTITION"))
    present = overlay.partitions.get(request.topic_id, len(topic.partitions))
    if request.total <= present:
        return Decision(Refused("INVALID_PARTITIONS", f"the topic has {present} partitions already"))
    added = request.total - present
    record = PartitionsAdded(request.topic_id, overlay.next_number, added)
    overlay.next_number += added
    overlay.partitions[request.topic_id] = request.total
    return Decision(Grown(request.total), (record,))


def _alter_configs(state: LedgerState, overlay: Overlay, request: AlterTopicConfigs, now_ms: int) -> Decision:
    topic = _live_topic(state, overlay, request.topic_id)
    if topic is None:
        return Decision(Refused("UNKNOWN_TOPIC_OR_PARTITION"))
    before = overlay.configs.get(request.topic_id, topic.configs)
    after = altered_configs(before, request)
    if is_too_long(after):
        return Decision(Refused("INVALID_CONFIG", "the configs of the topic would become too long"))
    if after == before:
        return Decision(Altered(after))
    overlay.configs[request.topic_id] = after
    return Decision(Altered(after), (TopicConfigsSet(request.topic_id, after),))


def _live_topic(state: LedgerState, overlay: Overlay, topic_id: TopicId) -> Topic | None:
    return None if topic_id in overlay.deleted else state.topics.by_id.get(topic_id)


def _delete_topic(state: LedgerState, overlay: Overlay, request: DeleteTopic, now_ms: int) -> Decision:
    if request.topic_id not in state.topics.by_id or request.topic_id in overlay.deleted:
        return Decision(Refused("UNKNOWN_TOPIC_ID"))
    overlay.deleted.add(request.topic_id)
    return Decision(Deleted(), (TopicDeleted(request.topic_id),))


def _commit_file(state: LedgerState, overlay: Overlay, request: CommitFile, now_ms: int) -> Decision:
    answer, record = decide_commit(state, overlay, request, now_ms)
    return Decision(answer, (record,) if record is not None else ())


def _delete_records(state: LedgerState, overlay: Overlay, request: DeleteRecords, now_ms: int) -> Decision:
    topic = _live_topic(state, overlay, request.topic_id)
    if topic is None or not 0 <= request.partition < len(topic.partitions):
        return Decision(Refused("UNKNOWN_TOPIC_OR_PARTITION"))
    log = topic.partitions[request.partition]
    offset = log.high_watermark if request.offset == HIGH_WATERMARK else request.offset
    if not 0 <= offset <= log.high_watermark:
        return Decision(Refused("OFFSET_OUT_OF_RANGE"))
    log_start = overlay.log_start.get(log.number, log.log_start)
    if offset <= log_start:
        return Decision(LowWatermark(log_start))
    overlay.log_start[log.number] = offset
    return Decision(LowWatermark(offset), (RecordsDeleted(log.number, offset),))


def _reserve(state: LedgerState, overlay: Overlay, request: ReserveProducerIds, now_ms: int) -> Decision:
    first = overlay.next_producer_id
    overlay.next_producer_id += request.count
    return Decision(Reserved(first, request.count), (ProducerIdsReserved(overlay.next_producer_id),))


def _drain(state: LedgerState, overlay: Overlay, request: DrainRuns, now_ms: int) -> Decision:
    left = request.limit
    records: list[RunsDropped] = []
    for number, log in state.draining.items():
        if left == 0:
            break
        if number in overlay.dropped:
            continue
        count = log.droppable(left)
        if count:
            overlay.dropped.add(number)
            overlay.touched_objects.update(log.first_objects(count))
            records.append(RunsDropped(number, count))
            left -= count
    return Decision(Done(request.limit - left), records)


def _expire(state: LedgerState, overlay: Overlay, request: ExpireProducers, now_ms: int) -> Decision:
    pairs: list[tuple[int, int]] = []
    for number, log in state.logs.items():
        if len(pairs) == request.limit:
            break
        for producer_id, producer in log.producers.items():
            if len(pairs) == request.limit:
                break
            if request.has_expired(producer.last_ms) and (number, producer_id) not in overlay.producers:
                pairs.append((number, producer_id))
    return Decision(Done(len(pairs)), (ProducersExpired(pairs),) if pairs else ())


def _forget_silent(state: LedgerState, overlay: Overlay, request: ForgetProducers, now_ms: int) -> Decision:
    pairs = [pair for pair in request.pairs if _is_silent(state, overlay, pair, now_ms)]
    return Decision(Done(len(pairs)), (ProducersExpired(pairs),) if pairs else ())


def _is_silent(state: LedgerState, overlay: Overlay, pair: tuple[int, int], now_ms: int) -> bool:
    number, producer_id = pair
    log = state.logs.get(number)
    producer = log.producers.get(producer_id) if log is not None else None
    return producer is not None and producer.last_ms <= now_ms - SILENT_MS and pair not in overlay.producers


def _forget(state: LedgerState, overlay: Overlay, request: ForgetObjects, now_ms: int) -> Decision:
    dead = [number for number in request.objects if number in state.files.garbage]
    return Decision(Done(len(dead)), (ObjectsForgotten(dead),) if dead else ())


def _raise_floor(state: LedgerState, overlay: Overlay, request: RaiseFloor, now_ms: int) -> Decision:
    # Keys to come carry at least this entry's time. A floor above it (requested before the clock was set
    # back) would refuse them all.
    floor_ms = min(request.floor_ms, now_ms)
    if floor_ms <= overlay.floor_ms:
        return Decision(Done(0))
    overlay.floor_ms = floor_ms
    return Decision(Done(1), (FloorRaised(floor_ms),))


Decider = Callable[[LedgerState, Overlay, Any, int], tuple[Answer, Sequence[MetadataRecord]]]


def _by(decider: Decider) -> Callable[..., Decision]:
    return lambda *seen: Decision(*decider(*seen))


_DECIDE: dict[type, Callable[..., Decision]] = {
    BecomeOwner: _become_owner,
    CreateTopic: _create_topic,
    AddPartitions: _add_partitions,
    AlterTopicConfigs: _alter_configs,
    DeleteTopic: _delete_topic,
    CommitFile: _commit_file,
    DeleteRecords: _delete_records,
    ReserveProducerIds: _reserve,
    DrainRuns: _drain,
    ExpireProducers: _expire,
    ForgetProducers: _forget_silent,
    ForgetObjects: _forget,
    RaiseFloor: _raise_floor,
    StoreGroup: _by(store_group),
    CommitOffsets: _by(commit_offsets),
    RemoveOffsets: _by(remove_offsets),
    RemoveGroup: _by(remove_group),
    DrainOffsets: _by(drain_offsets),
    SetClientQuotas: _by(set_client_quotas),
    SetResourceConfigs: _by(set_resource_configs),
}
