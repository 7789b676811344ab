"""Applying the metadata records of groups and their offsets."""

from dataclasses import replace

from ledger.groups.records import GroupRemoved, GroupStored, OffsetsCommitted, OffsetsRemoved
from ledger.groups.rows import GROUP, OFFSET
from ledger.groups.state import CommittedOffset
from ledger.state import LedgerState
from ledger.topics.records import TopicDeleted


def group_stored(state: LedgerState, record: GroupStored) -> None:
    group = replace(record.group, changed_ms=state.entry_time_ms)
    state.groups.by_id[group.group_id] = group
    state.dirty[GROUP].add(group.group_id)


def offsets_committed(state: LedgerState, record: OffsetsCommitted) -> None:
    group_id, now_ms = record.group_id, state.entry_time_ms
    put, dirty = state.groups.put_offset, state.dirty[OFFSET]
    for topic_id, partition, offset, epoch, expire_ms, metadata in record.rows:
        key = topic_id, partition
        put(group_id, key, CommittedOffset(offset, epoch, metadata, now_ms, expire_ms))
        dirty.add((group_id, key))


def offsets_removed(state: LedgerState, record: OffsetsRemoved) -> None:
    group_id = record.group_id
    remove, dirty = state.groups.remove_offset, state.dirty[OFFSET]
    for key in record.keys:
        remove(group_id, key)
        dirty.add((group_id, key))


def group_removed(state: LedgerState, record: GroupRemoved) -> None:
    state.groups.by_id.pop(record.group_id, None)
    state.dirty[GROUP].add(record.group_id)
    left = list(state.groups.offsets.get(record.group_id, ()))
    offsets_removed(state, OffsetsRemoved(record.group_id, left))


def topic_deleted(state: LedgerState, record: TopicDeleted) -> None:
    state.groups.topic_deleted(record.topic_id)
