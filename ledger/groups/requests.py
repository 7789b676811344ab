"""Requests about groups and their offsets, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from ledger.groups.records import OFFSET, OFFSET_KEY, EncodedGroup
from ledger.groups.state import Group, Member, OffsetKey, OffsetRow
from ledger.records import FRAME
from ledger.requests import SMALL, UTF8, Refused

MAX_OFFSETS = 2_000
"""That one request may commit or remove."""
_GROUP_ID_GUESS = 128
_DEFLATE_GROWTH = 1024
"""One byte in 1,024 at most; zlib needs five in 16 KiB."""


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Make a group durable as it is now, without its offsets; `changed_ms` is not looked at. Refused with
    UNKNOWN_SERVER_ERROR if it is too large. Result: Done(1).

    `encoded`: where that was done before, as it takes long for a large group (`encoding_group`)."""

    group: Group
    encoded: EncodedGroup | None = field(default=None, compare=False, repr=False)
    weight: int = field(init=False, compare=False)
    work: ClassVar[int] = 0

    def __post_init__(self) -> None:
        # Once: it is looked at when the entry is filled, by then perhaps several times.
        object.__setattr__(self, "weight", _group_weight(self.group, self.encoded))


def _group_weight(group: Group, encoded: EncodedGroup | None) -> int:
    if encoded is not None and encoded.record.body is not None:
        return FRAME.size + len(encoded.record.body)
    names = len(group.group_id) + len(group.protocol_type)
    names += len(group.protocol or "") + len(group.leader or "")
    fields = SMALL + UTF8 * names + sum(map(_member_weight, group.members))
    # What cannot be deflated grows by being tried.
    return fields + fields // _DEFLATE_GROWTH


def _member_weight(member: Member) -> int:
    names = len(member.member_id) + len(member.instance_id or "")
    names += len(member.client_id) + len(member.client_host)
    own = SMALL + UTF8 * names + len(member.assignment)
    return own + sum([8 + UTF8 * len(name) + len(data) for name, data in member.protocols])


_OWN_COMMIT: Final = FRAME.size + SMALL
# A topic id a row: they need not come in the order of their topics.
_EACH_OFFSET: Final = OFFSET.size + OFFSET_KEY.size


class CommitOffsets(NamedTuple):
    """Commit up to MAX_OFFSETS offsets of a group. Whether a member may do so is checked before; here only
    that the partitions exist. Result: OffsetsStored, or Refused for all of them if they are too many."""

    group_id: str
    rows: Sequence[OffsetRow]

    @property
    def weight(self) -> int:
        chars = len(self.group_id)
        for row in self.rows:
            chars += len(row.metadata)
        return _OWN_COMMIT + _EACH_OFFSET * len(self.rows) + UTF8 * chars

    @property
    def work(self) -> int:
        return len(self.rows)


class OffsetsStored(NamedTuple):
    """One result a row, in request order; None is a committed one."""

    results: Sequence[Refused | None]


@dataclass(frozen=True, slots=True)
class RemoveOffsets:
    """Forget up to MAX_OFFSETS offsets of a group, also those that a transaction is going to commit; with
    `committed_before_ms` only those that have not been committed since, and that no transaction is going to
    commit, so that expiry cannot race a commit. Result: Done(how many there were)."""

    group_id: str
    keys: Sequence[OffsetKey]
    committed_before_ms: int | None = None

    @property
    def weight(self) -> int:
        return SMALL + UTF8 * len(self.group_id) + OFFSET_KEY.size * len(self.keys)

    @property
    def work(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a group that has no members: up to `limit` of its offsets, and with the last of them the group
    itself, with those that a transaction is going to commit. With limit 0 it is removed only if there are
    none of either kind. Result: GroupGone; Refused with GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""

    group_id: str
    limit: int = MAX_OFFSETS

    @property
    def weight(self) -> int:
        return 2 * (SMALL + UTF8 * len(self.group_id)) + OFFSET_KEY.size * self.limit

    @property
    def work(self) -> int:
        return self.limit


@dataclass(frozen=True, slots=True)
class GroupGone:
    """`left` of its offsets are still there: callers repeat the request until it is 0, and the group gone."""

    left: int


@dataclass(frozen=True, slots=True)
class DrainOffsets:
    """Forget up to `limit` offsets of deleted topics. Result: Done."""

    limit: int = MAX_OFFSETS

    @property
    def weight(self) -> int:
        # Each may be of another group, whose name is repeated.
        return SMALL + (SMALL + _GROUP_ID_GUESS) * self.limit

    @property
    def work(self) -> int:
        return self.limit
