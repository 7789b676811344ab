"""Which entries of a local log are pruned (no I/O)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Numbers:
    """A set of numbers that are mostly adjacent."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def copy(self) -> "Numbers":
        copy = Numbers()
        copy._starts, copy._ends = self._starts[:], self._ends[:]
        return copy

    def add(self, number: int) -> None:
        self.add_range(number, number + 1)

    def add_range(self, start: int, end: int) -> None:
        """All numbers from `start` to before `end`."""
        if start >= end:
            return
        # What touches or overlaps it becomes one with it.
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def add_all(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.add(number)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def missing(self, start: int, end: int) -> Iterator[int]:
        """Numbers from `start` to before `end` that are not in it, ascending."""
        at = max(bisect_right(self._starts, start) - 1, 0)
        while start < end:
            if at < len(self._starts) and self._starts[at] <= start:
                start = max(start, self._ends[at])
                at += 1
                continue
            until = min(end, self._starts[at]) if at < len(self._starts) else end
            yield from range(start, until)
            start = until

    def next_missing(self, number: int) -> int:
        """The first one from `number` on that is not in it."""
        at = bisect_right(self._starts, number) - 1
        return self._ends[at] if at >= 0 and number < self._ends[at] else number

    def next_present(self, number: int, end: int) -> int:
        """The first one from `number` on that is in it, or `end`."""
        if number in self:
            return number
        at = bisect_right(self._starts, number)
        return min(self._starts[at], end) if at < len(self._starts) else end
