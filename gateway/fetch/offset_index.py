"""A sparse offset index of runs: the positions of batches that earlier reads came past, so that a large run
is walked once."""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import Final, NamedTuple

from ledger.partitions.markers import is_marker
from ledger.partitions.runs import Run

DEFAULT_RUNS: Final = 4_096
DEFAULT_POINTS: Final = 256


class Point(NamedTuple):
    """The batch at `position` (in the object) has base offset `base` and is the first that holds
    `offset` or anything later."""

    offset: int
    base: int
    position: int


class _Points:
    __slots__ = ("bases", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.bases = array("q")
        self.positions = array("q")


class SparseOffsetIndex:
    """At most `max_points` points for each of the `max_runs` runs that were read last.

    It only saves reads: without a point more is read, and the result is the same. A run's bytes never
    change, so that a point stays right, also when the run has grown at its end.
    """

    def __init__(self, max_runs: int = DEFAULT_RUNS, max_points: int = DEFAULT_POINTS) -> None:
        self._max_runs = max_runs
        self._max_points = max_points
        self._runs: OrderedDict[tuple[int, int], _Points] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, run: Run, point: Point) -> None:
        """Remember a point of this run."""
        offset = point.offset
        if offset <= run.base or is_marker(run):
            return
        key = (run.object_number, run.start)
        points = self._runs.get(key)
        if points is None:
            points = self._runs[key] = _Points()
            if len(self._runs) > self._max_runs:
                self._runs.popitem(last=False)
        offsets = points.offsets
        at = len(offsets)
        if at and offset <= offsets[-1]:
            # Not of a reader that follows the log.
            at = bisect_left(offsets, offset)
            if offsets[at] == offset:
                return
        offsets.insert(at, offset)
        points.bases.insert(at, point.base)
        points.positions.insert(at, point.position)
        if len(offsets) > self._max_points:
            # Every second point is dropped, but not the newest, where consumers that follow the log continue.
            points.offsets = points.offsets[::-2][::-1]
            points.bases = points.bases[::-2][::-1]
            points.positions = points.positions[::-2][::-1]

    def before(self, run: Run, offset: int) -> Point:
        """The last known point at or before `offset`; the start of the run if there is none."""
        key = (run.object_number, run.start)
        points = self._runs.get(key)
        if points is not None:
            self._runs.move_to_end(key)
            at = bisect_right(points.offsets, offset) - 1
            if at >= 0:
                return Point(points.offsets[at], points.bases[at], points.positions[at])
        return Point(run.base, run.base, run.start)
