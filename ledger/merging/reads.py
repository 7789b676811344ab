"""What is read for some tasks: each object once, in few ranges, with little that nobody wants.

A WAL object has runs of many partitions. Where the runs between two wanted ones are few, one read of all of
them costs less than two reads.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeVar

from ledger.merging.plan import MergeTask
from ledger.types import Position


@dataclass(frozen=True, slots=True)
class ReadRule:
    """How much may be read besides what is wanted, to spare reads.

    `gap_bytes`: no read goes on over a larger gap. `waste`: all gaps of an object that are read, compared
    with what is wanted of it; the smallest are taken first. `range_bytes`: what one read has at most, unless
    one run has more.
    """

    gap_bytes: int = 64 * 1024
    waste: float = 0.04
    range_bytes: int = 8 * 1024 * 1024


NEAR: Final = ReadRule()
"""Of local files: a read costs little, and a byte too."""
FAR: Final = ReadRule(gap_bytes=1024 * 1024, waste=0.25)
"""Of stores that bill requests."""


class Piece(NamedTuple):
    """One run that a read brings: `tasks[task].runs[run]`, and where it begins in the bytes of the read."""

    task: int
    run: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """One range of one object."""

    position: Position
    pieces: Sequence[Piece]

    def runs(self, data: memoryview) -> Iterator[tuple[Piece, memoryview]]:
        """Each run with its bytes: views of what was read. ValueError if that is not the whole range."""
        if len(data) != self.position.size:
            raise ValueError(f"{len(data)} bytes are not the {self.position.size} of the range")
        for piece in self.pieces:
            yield piece, data[piece.start : piece.start + piece.size]


def plan_reads(tasks: Sequence[MergeTask], rule: ReadRule = NEAR) -> Iterator[ObjectRead]:
    """The reads of these tasks, object by object in the order of their locators: that is about the order of
    their creation. Markers are not read. Memory: a piece for each run of the tasks."""
    wanted: dict[str, list[tuple[int, int, int, int]]] = {}
    for at, task in enumerate(tasks):
        for number, run in enumerate(task.runs):
            if run.is_marker:
                continue  # it is in no object
            wanted.setdefault(run.locator, []).append((run.start, run.size, at, number))
    for locator in sorted(wanted):
        yield from _object_reads(locator, sorted(wanted.pop(locator)), rule)


class Sized(Protocol):
    """A run, or a task."""

    @property
    def size(self) -> int: ...


Part = TypeVar("Part", bound=Sized)


def groups_of(parts: Iterable[Part], max_bytes: int) -> Iterator[Sequence[Part]]:
    """Adjacent ones that have so many bytes together at most: tasks whose runs are held in memory at once, so
    that an object that several of them need is read once, or runs of one segment. One that is larger alone is
    a group of its own."""
    group: list[Part] = []
    held = 0
    for part in parts:
        if group and held + part.size > max_bytes:
            yield group
            group, held = [], 0
        group.append(part)
        held += part.size
    if group:
        yield group


def _object_reads(
    locator: str, wanted: Sequence[tuple[int, int, int, int]], rule: ReadRule
) -> Iterator[ObjectRead]:
    gap = _largest_gap(wanted, rule)
    begin = end = wanted[0][0]
    pieces: list[Piece] = []
    for start, size, task, run in wanted:
        if pieces and (start - end > gap or start + size - begin > rule.range_bytes):
            yield ObjectRead(Position(locator, begin, end - begin), pieces)
            begin, pieces = start, []
        pieces.append(Piece(task, run, start - begin, size))
        end = start + size
    yield ObjectRead(Position(locator, begin, end - begin), pieces)


def _largest_gap(wanted: Sequence[tuple[int, int, int, int]], rule: ReadRule) -> int:
    """Gaps up to this size are read, as together they waste no more than the rule allows."""
    allowed = rule.waste * sum(size for _, size, _, _ in wanted)
    gaps = Counter(later[0] - earlier[0] - earlier[1] for earlier, later in pairwise(wanted))
    largest = 0
    for gap, count in sorted(gaps.items()):
        allowed -= gap * count
        if allowed < 0 or gap > rule.gap_bytes:
            break
        largest = gap
    return largest
