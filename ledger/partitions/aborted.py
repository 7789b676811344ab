"""The aborted transactions of a partition, of which the first may be left out without copying the others."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, overload

CHUNK: Final = 1_000


class AbortedTransaction(NamedTuple):
    """A transaction of which the records from `first` to `last`, its marker, are not for read_committed.

    `last_stable`: the last stable offset once it had ended. A fetch that ends below it needs no later one.
    """

    last: int
    producer_id: int
    first: int
    last_stable: int


class AbortedTransactions(Sequence[AbortedTransaction]):
    """Ascending by the offset of the marker. Only ever grows, at its end."""

    __slots__ = ("_chunks", "_head")

    def __init__(self, found: Iterable[AbortedTransaction] = ()) -> None:
        self._chunks: list[list[AbortedTransaction]] = []
        """All but the last have CHUNK."""
        self._head = 0
        """Of the first chunk, so many are left out."""
        for each in found:
            self.append(each)

    def append(self, aborted: AbortedTransaction) -> None:
        if not self._chunks or len(self._chunks[-1]) == CHUNK:
            self._chunks.append([])
        self._chunks[-1].append(aborted)

    def without_first(self, count: int) -> "AbortedTransactions":
        """The others, of which this one keeps all that it has now. Only the result is appended to from then
        on."""
        rest = AbortedTransactions()
        if count < len(self):
            chunk, rest._head = divmod(self._head + count, CHUNK)
            rest._chunks = self._chunks[chunk:]
        return rest

    def below(self, offset: int) -> int:
        """How many have their marker below this offset."""
        chunk, row = self._first_from(offset)
        return chunk * CHUNK + row - self._head

    def since(self, offset: int) -> Iterator[AbortedTransaction]:
        """Those that have their marker at this offset or after it."""
        at, row = self._first_from(offset)
        while at < len(self._chunks):
            chunk = self._chunks[at]
            while row < len(chunk):
                yield chunk[row]
                row += 1
            at, row = at + 1, 0

    def _first_from(self, offset: int) -> tuple[int, int]:
        """The chunk of the first of those, and its place there."""
        at = bisect_left(self._chunks, offset, key=_last_of_chunk)
        if at == len(self._chunks):
            return (at - 1, len(self._chunks[-1])) if at else (0, 0)
        return at, bisect_left(self._chunks[at], offset, 0 if at else self._head, key=_last)

    def __len__(self) -> int:
        if not self._chunks:
            return 0
        return (len(self._chunks) - 1) * CHUNK + len(self._chunks[-1]) - self._head

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return islice(chain.from_iterable(self._chunks), self._head, None)

    @overload
    def __getitem__(self, at: int) -> AbortedTransaction: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[AbortedTransaction]: ...

    def __getitem__(self, at: int | slice) -> AbortedTransaction | Sequence[AbortedTransaction]:
        count = len(self)
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(count))]
        if not -count <= at < count:
            raise IndexError(at)
        chunk, row = divmod(self._head + at % count, CHUNK)
        return self._chunks[chunk][row]


def _last(aborted: AbortedTransaction) -> int:
    return aborted.last


def _last_of_chunk(chunk: Sequence[AbortedTransaction]) -> int:
    return chunk[-1].last


NONE_ABORTED: Final = AbortedTransactions()
"""Never changed."""
