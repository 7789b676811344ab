"""Where the runs of partitions are that are inside of journal entries."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class InlineRuns:
    """By partition number, the base offsets of these runs, also of those that are not drained yet. They are
    in no image: the runs and their objects say the same."""

    _bases: "dict[int, array[int]]" = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[int]:
        """Numbers of the partitions that have some."""
        return iter(self._bases)

    def __contains__(self, number: int) -> bool:
        return number in self._bases

    def add(self, number: int, base: int) -> None:
        """A run after all others of its partition."""
        known = self._bases.get(number)
        if known is None:
            self._bases[number] = array("q", (base,))
        else:
            known.append(base)

    def first(self, number: int, offset: int) -> int | None:
        """The lowest base offset of a partition from `offset` on."""
        known = self._bases.get(number)
        if known is None:
            return None
        at = bisect_left(known, offset)
        return known[at] if at < len(known) else None

    def remove(self, number: int, first: int, last: int) -> None:
        """Those that begin from `first` to `last`."""
        known = self._bases.get(number)
        if known is not None:
            del known[bisect_left(known, first) : bisect_right(known, last)]
            if not known:
                del self._bases[number]

    def clear(self) -> None:
        self._bases.clear()
