"""Consumer groups of the classic protocol and what they have committed: values, and what a shard holds.

A group with offsets and no `Group` is a simple one: its consumers assign partitions themselves and only
commit. Offsets are kept by topic id, so those of a deleted topic are never taken for those of a later topic
of the same name; they are not read any more, and are drained in slices.
"""

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ledger.requests import text_bytes
from ledger.types import TopicId

MAX_GROUP_ID_BYTES = 32_767
NO_GENERATION = -1
NO_LEADER_EPOCH = -1
BY_RETENTION = -1
"""As `expire_ms`: the offset lives as long as the retention of the broker says."""

OFFSET_BYTES = 256
GROUP_BYTES = 512
"""About the memory of a committed offset, and of a group that has any, their texts aside."""

OffsetKey: TypeAlias = tuple[TopicId, int]
"""(topic id, partition index)."""


class Member(NamedTuple):
    """A member with all that it said when it joined. All its protocols are kept, so that one that joins
    again with the same ones after the coordinator died causes no rebalance."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(assignor, subscription), the preferred one first."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """What must outlive the coordinator. Without members the group is empty; not `synced` means that the
    members of the generation are known, and the assignment of its leader is not."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[Member, ...]
    synced: bool
    changed_ms: int = 0
    """Time of the journal entry that says so; put in when that is applied."""


class OffsetRow(NamedTuple):
    """An offset to commit. `expire_ms` is BY_RETENTION or a unix time."""

    topic_id: TopicId
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    expire_ms: int = BY_RETENTION
    metadata: str = ""


class CommittedOffset(NamedTuple):
    """How far a group has read a partition; `committed_ms` is the time of the journal entry."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expire_ms: int = BY_RETENTION


@dataclass(slots=True)
class TopicHolders:
    """How many offsets of a topic each group has committed, and a bound of their partition indexes."""

    counts: dict[str, int] = field(default_factory=dict)
    width: int = 0


@dataclass(slots=True)
class Groups:
    """The groups of a shard. Only `LedgerState.apply` and a restore change them."""

    by_id: dict[str, Group] = field(default_factory=dict)
    offsets: dict[str, dict[OffsetKey, CommittedOffset]] = field(default_factory=dict)
    """By group; a group that has none is not in it."""
    by_topic: dict[TopicId, TopicHolders] = field(default_factory=dict)
    offset_bytes: int = 0
    """About the memory of all offsets."""
    dead: dict[TopicId, None] = field(default_factory=dict)
    """Deleted topics of which offsets are left."""

    def has(self, group_id: str) -> bool:
        return group_id in self.by_id or group_id in self.offsets

    def ids(self) -> Iterator[str]:
        """Every group, as `each_once`."""
        return each_once(self.by_id, self.offsets)

    def put_offset(self, group_id: str, key: OffsetKey, committed: CommittedOffset) -> None:
        held = self.offsets.get(group_id)
        if held is None:
            held = self.offsets[group_id] = {}
            self.offset_bytes += GROUP_BYTES + text_bytes(group_id)
        before = held.get(key)
        if before is None:
            self._count(group_id, key)
            self.offset_bytes += OFFSET_BYTES + text_bytes(committed.metadata)
        elif before.metadata != committed.metadata:
            self.offset_bytes += text_bytes(committed.metadata) - text_bytes(before.metadata)
        held[key] = committed

    def _count(self, group_id: str, key: OffsetKey) -> None:
        topic_id, partition = key
        holders = self.by_topic.get(topic_id)
        if holders is None:
            holders = self.by_topic[topic_id] = TopicHolders()
        holders.counts[group_id] = holders.counts.get(group_id, 0) + 1
        if partition >= holders.width:
            holders.width = partition + 1

    def remove_offset(self, group_id: str, key: OffsetKey) -> None:
        held = self.offsets.get(group_id)
        gone = held.pop(key, None) if held is not None else None
        if gone is None:
            return
        self.offset_bytes -= OFFSET_BYTES + text_bytes(gone.metadata)
        if not held:
            del self.offsets[group_id]
            self.offset_bytes -= GROUP_BYTES + text_bytes(group_id)
        counts = self.by_topic[key[0]].counts
        counts[group_id] -= 1
        if not counts[group_id]:
            del counts[group_id]
        if not counts:
            del self.by_topic[key[0]]
            self.dead.pop(key[0], None)

    def topic_deleted(self, topic_id: TopicId) -> None:
        if topic_id in self.by_topic:
            self.dead[topic_id] = None

    def find_dead(self, live: Container[TopicId]) -> None:
        """After a restore, which says only the offsets: those of topics that are not `live` are dead."""
        self.dead = {topic_id: None for topic_id in sorted(self.by_topic) if topic_id not in live}

    def dead_offsets(self) -> Iterator[tuple[str, OffsetKey]]:
        """(group, key) of the offsets of deleted topics."""
        for topic_id in self.dead:
            holders = self.by_topic[topic_id]
            for group_id, left in holders.counts.items():
                held = self.offsets[group_id]
                for key in _keys_of(topic_id, holders.width, held):
                    yield group_id, key
                    left -= 1
                    if not left:
                        break


def each_once(*parts: Collection[str]) -> Iterator[str]:
    """The ids in all of these, each once, as they are at the first step. There may be very many: callers may
    wait between two steps, and a group may come or go meanwhile."""
    found = [list(part) for part in parts]
    # Grows step by step: a union of all at once would hold the event loop for the whole of them.
    seen = set[str]()
    for ids in found:
        for group_id in ids:
            if group_id not in seen:
                seen.add(group_id)
                yield group_id


def _keys_of(topic_id: TopicId, width: int, held: Mapping[OffsetKey, CommittedOffset]) -> Iterator[OffsetKey]:
    # A group may hold far more offsets than the topic had partitions, or far fewer.
    if width < len(held):
        return ((topic_id, at) for at in range(width) if (topic_id, at) in held)
    return (key for key in held if key[0] == topic_id)
