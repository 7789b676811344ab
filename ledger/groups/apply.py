"""Applying the metadata records of groups and their offsets."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ledger.groups.records import GroupRemoved, GroupStored, OffsetsCommitted, OffsetsRemoved
from ledger.groups.rows import GROUP, OFFSET
from ledger.groups.state import CommittedOffset, OffsetKey
from ledger.state import LedgerState
from ledger.topics.records import TopicDeleted


def group_stored(state: LedgerState, record: GroupStored) -> None:
    group = replace(record.group, changed_ms=state.entry_time_ms)
    _keep_group(state, group.group_id)
    state.groups.by_id[group.group_id] = group
    state.dirty[GROUP].add(group.group_id)


def offsets_committed(state: LedgerState, record: OffsetsCommitted) -> None:
    group_id, now_ms = record.group_id, state.entry_time_ms
    _keep_offsets(state, group_id, ((row.topic_id, row.partition) for row in record.rows))
    put, dirty = state.groups.put_offset, state.dirty[OFFSET]
    for topic_id, partition, offset, epoch, expire_ms, metadata in record.rows:
        key = topic_id, partition
        put(group_id, key, CommittedOffset(offset, epoch, metadata, now_ms, expire_ms))
        dirty.add((group_id, key))


def put_offsets(
    state: LedgerState, group_id: str, committed: Sequence[tuple[OffsetKey, CommittedOffset]]
) -> None:
    """The offsets of a group are these from here on."""
    _keep_offsets(state, group_id, (key for key, _ in committed))
    dirty = state.dirty[OFFSET]
    for key, offset in committed:
        state.groups.put_offset(group_id, key, offset)
        dirty.add((group_id, key))


def offsets_removed(state: LedgerState, record: OffsetsRemoved) -> None:
    group_id = record.group_id
    _keep_offsets(state, group_id, record.keys)
    remove, dirty = state.groups.remove_offset, state.dirty[OFFSET]
    for key in record.keys:
        remove(group_id, key)
        dirty.add((group_id, key))


def group_removed(state: LedgerState, record: GroupRemoved) -> None:
    _keep_group(state, record.group_id)
    state.groups.by_id.pop(record.group_id, None)
    state.dirty[GROUP].add(record.group_id)
    left = list(state.groups.offsets.get(record.group_id, ()))
    offsets_removed(state, OffsetsRemoved(record.group_id, left))


def _keep_group(state: LedgerState, group_id: str) -> None:
    if state.cut is not None:
        state.cut.keep_row(GROUP, group_id)


def _keep_offsets(state: LedgerState, group_id: str, keys: Iterable[OffsetKey]) -> None:
    if state.cut is not None:
        for key in keys:
            state.cut.keep_row(OFFSET, (group_id, key))


def topic_deleted(state: LedgerState, record: TopicDeleted) -> None:
    state.groups.topic_deleted(record.topic_id)
