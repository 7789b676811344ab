"""What the owner of a shard is asked, and what it answers. Refusals are values.

`weight` is an upper bound of the journal bytes that a request may need; the driver fills an entry by it.
Error names are Kafka's (`TOPIC_ALREADY_EXISTS`), so that the ledger need not know the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ledger.group_records import OFFSET, OFFSET_KEY
from ledger.groups import Group, Member, OffsetKey, OffsetRow
from ledger.quotas import QuotaEntity
from ledger.records import BATCH, FRAME, RUN
from ledger.types import TopicId

_SMALL = 64
_UTF8 = 4
"""Bytes that a character may need."""
MAX_OFFSETS = 2_000
"""That one request may commit or remove."""
MAX_QUOTA_BYTES = 4 * 1024
"""Of one entity with all its quotas."""
_GROUP_ID_GUESS = 128
_DEFLATE_GROWTH = 1024
"""One byte in so many; zlib needs five in 16 KiB."""
MAX_CONFIG_BYTES = 128 * 1024
"""Of all configs of one topic, names and values."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No record was written. `error` is the name of Kafka's error code."""

    error: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class BecomeOwner:
    """Begin a new epoch; `cluster_id` is taken only by a journal that is still empty."""

    gateway: int
    incarnation: bytes
    cluster_id: str
    weight: int = 2 * _SMALL


@dataclass(frozen=True, slots=True)
class Owner:
    epoch: int


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    topic_id: TopicId
    partitions: int
    configs: Mapping[str, str]

    @property
    def weight(self) -> int:
        pairs = sum(len(key) + len(value) for key, value in self.configs.items())
        return _SMALL + 4 * (len(self.name) + pairs) + 8 * len(self.configs)


@dataclass(frozen=True, slots=True)
class Created:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Let a topic grow to `total` partitions."""

    topic_id: TopicId
    total: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class Grown:
    partitions: int


class ConfigOp(Enum):
    """KIP-339; APPEND and SUBTRACT work on comma-separated lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """`value` is a checked value, or for a list operation its items; for DELETE it is not looked at."""

    op: ConfigOp
    name: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class AlterTopicConfigs:
    """Change some configs of a topic. `replace`: what is not named goes back to its default.
    `list_defaults`: what a list that is not set holds, for APPEND and SUBTRACT."""

    topic_id: TopicId
    changes: Sequence[ConfigChange]
    replace: bool = False
    list_defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        # The record holds all configs of the topic, not only those that change.
        return _SMALL + MAX_CONFIG_BYTES


@dataclass(frozen=True, slots=True)
class Altered:
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: TopicId
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class Deleted:
    pass


class CommitBatch(NamedTuple):
    """One batch of a stored draft, and what the ledger needs of its header. A named tuple, as one is made for
    every batch."""

    topic_id: TopicId
    partition: int
    start: int
    size: int
    record_count: int
    max_timestamp: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class CommitFile:
    """Number the batches that lie in one object (KIP-1164 DisklessCommitFile)."""

    locator: str
    object_bytes: int
    batches: Sequence[CommitBatch]

    @property
    def weight(self) -> int:
        return FRAME.size + _SMALL + 4 * len(self.locator) + len(self.batches) * (RUN.size + BATCH.size)


class Committed(NamedTuple):
    """`duplicate`: these offsets were given to the same batch before."""

    base_offset: int
    log_start: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class FileCommit:
    """One answer a batch, in request order."""

    results: Sequence[Committed | Refused]


@dataclass(frozen=True, slots=True)
class StaleObject:
    """The object is below the orphan floor or closed: store the draft again under a new key."""


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Raise the log start offset; offset -1 means the high watermark."""

    topic_id: TopicId
    partition: int
    offset: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class LowWatermark:
    offset: int


@dataclass(frozen=True, slots=True)
class ReserveProducerIds:
    count: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class Reserved:
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class DrainRuns:
    """Let go of up to `limit` runs that nobody can read any more."""

    limit: int

    @property
    def weight(self) -> int:
        return _SMALL * max(self.limit, 1)


@dataclass(frozen=True, slots=True)
class ExpireProducers:
    """Forget up to `limit` producers that have been silent since before `before_ms`, or since a time between
    `ahead_of_ms` and `ahead_before_ms`: of a journal that is ahead of the clock, such times are too."""

    before_ms: int
    limit: int
    ahead_of_ms: int = 0
    ahead_before_ms: int = 0

    def has_expired(self, last_ms: int) -> bool:
        return last_ms < self.before_ms or self.ahead_of_ms < last_ms < self.ahead_before_ms

    @property
    def weight(self) -> int:
        return _SMALL + 12 * self.limit


@dataclass(frozen=True, slots=True)
class ForgetProducers:
    """Forget those of these (partition number, producer id) that have been silent for `SILENT_MS`."""

    pairs: Sequence[tuple[int, int]]

    @property
    def weight(self) -> int:
        return _SMALL + 12 * len(self.pairs)


@dataclass(frozen=True, slots=True)
class ForgetObjects:
    """The bytes of these closed objects were deleted."""

    objects: Sequence[int]

    @property
    def weight(self) -> int:
        return _SMALL + 4 * len(self.objects)


@dataclass(frozen=True, slots=True)
class RaiseFloor:
    floor_ms: int
    weight: int = _SMALL


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Make a group durable as it is now, without its offsets; `changed_ms` is not looked at. Refused with
    UNKNOWN_SERVER_ERROR if it is too large. Answer: Done(1)."""

    group: Group

    @property
    def weight(self) -> int:
        group = self.group
        names = len(group.group_id) + len(group.protocol_type)
        names += len(group.protocol or "") + len(group.leader or "")
        fields = _SMALL + _UTF8 * names + sum(map(_member_weight, group.members))
        # What cannot be deflated grows by being tried.
        return fields + fields // _DEFLATE_GROWTH


def _member_weight(member: Member) -> int:
    names = len(member.member_id) + len(member.instance_id or "")
    names += len(member.client_id) + len(member.client_host)
    own = _SMALL + _UTF8 * names + len(member.assignment)
    return own + sum([8 + _UTF8 * len(name) + len(data) for name, data in member.protocols])


_OWN_COMMIT: Final = FRAME.size + _SMALL
# A topic id a row: they need not come in the order of their topics.
_EACH_OFFSET: Final = OFFSET.size + OFFSET_KEY.size


class CommitOffsets(NamedTuple):
    """Commit up to MAX_OFFSETS offsets of a group. Whether a member may do so is judged before; here only
    that the partitions exist. Answer: OffsetsStored, or Refused for all of them if they are too many."""

    group_id: str
    rows: Sequence[OffsetRow]

    @property
    def weight(self) -> int:
        chars = len(self.group_id)
        for row in self.rows:
            chars += len(row.metadata)
        return _OWN_COMMIT + _EACH_OFFSET * len(self.rows) + _UTF8 * chars


class OffsetsStored(NamedTuple):
    """One result a row, in request order; None is a committed one."""

    results: Sequence[Refused | None]


@dataclass(frozen=True, slots=True)
class RemoveOffsets:
    """Forget up to MAX_OFFSETS offsets of a group; with `committed_before_ms` only those that have not been
    committed since, so that expiry cannot race a commit. Answer: Done(how many there were)."""

    group_id: str
    keys: Sequence[OffsetKey]
    committed_before_ms: int | None = None

    @property
    def weight(self) -> int:
        return _SMALL + _UTF8 * len(self.group_id) + OFFSET_KEY.size * len(self.keys)


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a group that has no members: up to `limit` of its offsets, and with the last of them the group
    itself. Answer: GroupGone; Refused with GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""

    group_id: str
    limit: int = MAX_OFFSETS

    @property
    def weight(self) -> int:
        return 2 * (_SMALL + _UTF8 * len(self.group_id)) + OFFSET_KEY.size * self.limit


@dataclass(frozen=True, slots=True)
class GroupGone:
    """`left` of its offsets are still there: ask again until it is 0, which means that the group is gone."""

    left: int


@dataclass(frozen=True, slots=True)
class DrainOffsets:
    """Forget up to `limit` offsets of deleted topics. Answer: Done."""

    limit: int = MAX_OFFSETS

    @property
    def weight(self) -> int:
        # Each may be of another group, whose name is repeated.
        return _SMALL + (_SMALL + _GROUP_ID_GUESS) * self.limit


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """New values by quota key; None takes the quota away. What is not named stays."""

    entity: QuotaEntity
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class SetClientQuotas:
    """Change quotas of entities, all or none of them. Answer: Done(how many entities changed)."""

    changes: Sequence[QuotaChange]

    @property
    def weight(self) -> int:
        return _SMALL + MAX_QUOTA_BYTES * len(self.changes)


@dataclass(frozen=True, slots=True)
class SetResourceConfigs:
    """Change configs of a broker (name "": of all) or of a group, as `AlterTopicConfigs` does."""

    resource_type: str
    name: str
    changes: Sequence[ConfigChange]
    replace: bool = False
    list_defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        return _SMALL + _UTF8 * len(self.name) + MAX_CONFIG_BYTES


@dataclass(frozen=True, slots=True)
class Done:
    """`count` things were done; 0 means that nothing was left to do."""

    count: int


Request: TypeAlias = (
    BecomeOwner
    | CreateTopic
    | AddPartitions
    | AlterTopicConfigs
    | DeleteTopic
    | CommitFile
    | DeleteRecords
    | ReserveProducerIds
    | DrainRuns
    | ExpireProducers
    | ForgetProducers
    | ForgetObjects
    | RaiseFloor
    | StoreGroup
    | CommitOffsets
    | RemoveOffsets
    | RemoveGroup
    | DrainOffsets
    | SetClientQuotas
    | SetResourceConfigs
)


GROWING: frozenset[type] = frozenset(
    {CreateTopic, AddPartitions, ReserveProducerIds, StoreGroup, CommitOffsets}
)
"""Requests of clients that only make the ledger grow: refused first when a disk is nearly full. CommitFile is
not among them: its bytes are stored already."""


def work(request: Request) -> int:
    """What applying the records of a request costs at most, in batches: so that no entry of many requests
    keeps the event loop for long, whatever its bytes (`GROUP_COMMIT_BATCHES`)."""
    match request:
        case CommitFile():
            return len(request.batches)
        case CommitOffsets():
            return len(request.rows)
        case RemoveOffsets():
            return len(request.keys)
        case RemoveGroup() | DrainOffsets():
            return request.limit
        case _:
            return 0


Answer: TypeAlias = (
    Owner
    | Created
    | Grown
    | Altered
    | Deleted
    | FileCommit
    | StaleObject
    | LowWatermark
    | Reserved
    | OffsetsStored
    | GroupGone
    | Done
    | Refused
)
