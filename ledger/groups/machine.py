"""Groups and their offsets, as a machine of the registry."""

from ledger.groups.apply import group_removed, group_stored, offsets_committed, offsets_removed, topic_deleted
from ledger.groups.decide import commit_offsets, drain_offsets, remove_group, remove_offsets, store_group
from ledger.groups.records import (
    GROUP_REMOVED,
    GROUP_STORED,
    OFFSETS_COMMITTED,
    OFFSETS_REMOVED,
    GroupRemoved,
    GroupStored,
    OffsetsCommitted,
    OffsetsRemoved,
)
from ledger.groups.requests import CommitOffsets, DrainOffsets, RemoveGroup, RemoveOffsets, StoreGroup
from ledger.groups.rows import SECTIONS, complete
from ledger.machine import Machine
from ledger.topics.records import TopicDeleted

GROUPS = Machine(
    decide={
        StoreGroup: store_group,
        CommitOffsets: commit_offsets,
        RemoveOffsets: remove_offsets,
        RemoveGroup: remove_group,
        DrainOffsets: drain_offsets,
    },
    formats=(GROUP_STORED, OFFSETS_COMMITTED, OFFSETS_REMOVED, GROUP_REMOVED),
    apply={
        GroupStored: group_stored,
        OffsetsCommitted: offsets_committed,
        OffsetsRemoved: offsets_removed,
        GroupRemoved: group_removed,
        TopicDeleted: topic_deleted,
    },
    sections=SECTIONS,
    complete=complete,
    # Requests that read the offsets of other commits are not.
    overlapping=frozenset({CommitOffsets}),
    growing=frozenset({StoreGroup, CommitOffsets}),
)
