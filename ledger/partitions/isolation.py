"""What read_committed needs of a partition: which transactions are open in it, and which were aborted."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ledger.partitions.aborted import AbortedTransaction, AbortedTransactions


class Isolation:
    """Of one partition with transactions. Changed by `apply` of metadata records alone."""

    __slots__ = ("aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offset of each open transaction, by producer id; in ascending order of offsets, since batches
        come in that order."""
        self.aborted = AbortedTransactions()
        """A fetch that has planned a read with it keeps all that concerns the read, also if the log start
        moves meanwhile."""

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

    def below(self, log_start: int) -> Sequence[AbortedTransaction]:
        """Those that end below this offset."""
        return list(islice(self.aborted, self.aborted.below(log_start)))

    def drop_first(self, count: int) -> None:
        """Their records are below the log start, and gone."""
        self.aborted = self.aborted.without_first(count)

    def clear(self) -> None:
        """Its partition is gone."""
        self.open, self.aborted = {}, AbortedTransactions()

    def aborted_at(self, marker: int) -> AbortedTransaction | None:
        """The one whose marker has this offset."""
        found = next(self.aborted.since(marker), None)
        return found if found is not None and found.last == marker else None

    def aborted_in(self, first: int, end: int) -> Iterator[AbortedTransaction]:
        """Those that have records in [first, end), in the order of their markers."""
        return aborted_in(self.aborted, first, end)


def aborted_in(aborted: AbortedTransactions, first: int, end: int) -> Iterator[AbortedTransaction]:
    """As `Isolation.aborted_in`, of its `aborted`."""
    for found in aborted.since(first):
        if found.first < end:
            yield found
        if found.last_stable >= end:
            return


NO_ISOLATION: Final = Isolation()
"""Of a partition without transactions; never changed."""
