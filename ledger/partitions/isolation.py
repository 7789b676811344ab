"""What read_committed needs of a partition: which transactions are open in it, and which were aborted."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

COPIED: Final = 1_000
"""A list of so many is copied whenever some are dropped."""


class AbortedTransaction(NamedTuple):
    """A transaction of which the records from `first` to `last`, its marker, are not for read_committed.

    `last_stable`: the last stable offset once it had ended. A fetch that ends below it needs no later one.
    """

    last: int
    producer_id: int
    first: int
    last_stable: int


class Isolation:
    """Of one partition with transactions. Changed by `apply` of metadata records alone."""

    __slots__ = ("_dead", "aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offset of each open transaction, by producer id; in ascending order of offsets, since batches
        come in that order."""
        self.aborted: list[AbortedTransaction] = []
        """Ascending by the offset of the marker. Only ever grows at its end: a fetch that has planned a read
        with it keeps all that concerns the read, also if the log start moves meanwhile. Where there are very
        many, it begins with some that were dropped: it is copied once half of it was, so that drops in slices
        take as long as there is to drop."""
        self._dead = 0
        """Of `aborted`, so many were dropped: not all, unless there are none."""

    @property
    def is_empty(self) -> bool:
        return not self.open and not self.aborted

    @property
    def first_open(self) -> int | None:
        """The first offset of all open transactions; None if there is none."""
        return next(iter(self.open.values()), None)

    def begin(self, producer_id: int, offset: int) -> None:
        """A transaction has records here, the first at this offset. Nothing changes if it had some before."""
        self.open.setdefault(producer_id, offset)

    def end(self, producer_id: int, marker: int, is_commit: bool) -> AbortedTransaction | None:
        """The transaction ends with the marker at this offset. Returns what readers must know of it: nothing
        if it is committed, or has no records here."""
        first = self.open.pop(producer_id, None)
        if first is None or is_commit:
            return None
        still_open = self.first_open
        last_stable = marker + 1 if still_open is None else still_open
        aborted = AbortedTransaction(marker, producer_id, first, last_stable)
        self.aborted.append(aborted)
        return aborted

    def live(self) -> Iterator[AbortedTransaction]:
        """All that were not dropped."""
        return islice(self.aborted, self._dead, None)

    def below(self, log_start: int) -> Sequence[AbortedTransaction]:
        """Those that `drop_below` will drop."""
        return self.aborted[self._dead : self._first_from(log_start)]

    def drop_below(self, log_start: int) -> None:
        """Records below the log start are gone, and with them the aborted transactions that end there."""
        dead, count = self._first_from(log_start), len(self.aborted)
        if dead > self._dead and (count <= COPIED or 2 * dead >= count):
            self.aborted, dead = self.aborted[dead:], 0
        self._dead = dead

    def _first_from(self, log_start: int) -> int:
        return bisect_left(self.aborted, log_start, self._dead, key=_last)

    def clear(self) -> None:
        """Its partition is gone."""
        self.open, self.aborted, self._dead = {}, [], 0

    def aborted_at(self, marker: int) -> AbortedTransaction | None:
        """The one whose marker has this offset."""
        at = self._first_from(marker)
        return self.aborted[at] if at < len(self.aborted) and self.aborted[at].last == marker else None

    def aborted_in(self, first: int, end: int) -> Iterator[AbortedTransaction]:
        """Those that have records in [first, end), in the order of their markers."""
        return aborted_in(self.aborted, first, end)


def aborted_in(aborted: Sequence[AbortedTransaction], first: int, end: int) -> Iterator[AbortedTransaction]:
    """As `Isolation.aborted_in`, of its `aborted`."""
    for at in range(bisect_left(aborted, first, key=_last), len(aborted)):
        found = aborted[at]
        if found.first < end:
            yield found
        if found.last_stable >= end:
            return


def _last(aborted: AbortedTransaction) -> int:
    return aborted.last


NO_ISOLATION: Final = Isolation()
"""Of a partition without transactions; never changed."""
