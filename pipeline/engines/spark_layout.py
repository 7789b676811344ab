"""How a wave of merge tasks is laid out for Spark: which tasks share a Spark task, and whether runs go
through the shuffle. Pure.

The shuffle costs 17 CPU seconds a GB more than a direct read and spares nothing but requests
(docs/decisions/0044): so it is for stores where a wave's objects would take many more reads without it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ledger.merging.plan import MergeTask
from ledger.merging.reads import NEAR, ObjectRead, ReadRule, plan_reads


class Work(NamedTuple):
    """A merge task, and its number in the wave. `without_missing`: a run that the store does not have is left
    out, since the task was planned again for it often enough."""

    number: int
    task: MergeTask
    without_missing: bool = False


class WantedRead(NamedTuple):
    """A range of an object; `pieces` of it are named by the numbers of merge tasks in the wave."""

    read: ObjectRead
    groups: Sequence[int]
    """Of each piece: which Spark task of the second stage gets it."""


Slice: TypeAlias = tuple[Sequence[WantedRead], Sequence[tuple[int, Work]]]
"""What one task of the first stage reads, and merge tasks that it hands on, each with its group."""


GROUP_BYTES: Final = 64 * 1024 * 1024
MIN_GROUP_BYTES: Final = 4 * 1024 * 1024
SPARED_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """`groups`: the merge tasks that a Spark task carries out. `slices`: of the first stage, if their runs go
    through the shuffle; else there are none."""

    groups: Sequence[Sequence[Work]]
    slices: Sequence[Slice]


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """`reads`: which gaps are read. `is_billed`: reads cost something each. `slots`: Spark tasks that run at
    a time. `group_bytes`: of runs that one Spark task holds in memory, unless one merge task has more.
    `min_group_bytes`: a Spark task takes a while to begin. `spared_read_bytes`: to spare a read is worth this
    many bytes in the shuffle. (A read of S3 costs as much as 2 MB in the shuffle, with a core at 4 cents an
    hour.)"""

    reads: ReadRule = NEAR
    is_billed: bool = False
    slots: int = 1
    group_bytes: int = GROUP_BYTES
    min_group_bytes: int = MIN_GROUP_BYTES
    spared_read_bytes: int = SPARED_READ_BYTES


def lay_out(works: Sequence[Work], rule: LayoutRule) -> Layout:
    """`works` are numbered from 0 on, in this order."""
    size = sum(work.task.size for work in works)
    group_bytes = min(rule.group_bytes, max(rule.min_group_bytes, size // (2 * rule.slots)))
    groups = list(_groups(works, group_bytes))
    if not rule.is_billed or len(groups) == 1:
        return Layout(groups, [])
    direct = sum(_count(plan_reads([work.task for work in group], rule.reads)) for group in groups)
    shared = list(plan_reads([work.task for work in works], rule.reads))
    if (direct - len(shared)) * rule.spared_read_bytes <= size:
        return Layout(groups, [])
    return Layout(groups, _slices(groups, shared, group_bytes))


def _groups(works: Sequence[Work], group_bytes: int) -> Iterator[Sequence[Work]]:
    group: list[Work] = []
    held = 0
    for work in works:
        if group and held + work.task.size > group_bytes:
            yield group
            group, held = [], 0
        group.append(work)
        held += work.task.size
    if group:
        yield group


def _slices(groups: Sequence[Sequence[Work]], reads: Sequence[ObjectRead], slice_bytes: int) -> list[Slice]:
    group_of = {work.number: at for at, group in enumerate(groups) for work in group}
    parts: list[list[WantedRead]] = [[]]
    held = 0
    for read in reads:
        if parts[-1] and held + read.position.size > slice_bytes:
            parts.append([])
            held = 0
        parts[-1].append(WantedRead(read, [group_of[piece.task] for piece in read.pieces]))
        held += read.position.size
    grouped = [(group_of[work.number], work) for group in groups for work in group]
    return [(part, grouped[at :: len(parts)]) for at, part in enumerate(parts)]


def _count(reads: Iterator[ObjectRead]) -> int:
    return sum(1 for _ in reads)
