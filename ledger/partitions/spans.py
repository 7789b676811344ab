"""Spans: adjacent live runs of a partition, and the chunks that replace theirs when others take their place.

Chunks are never edited, as a cut may still read them. The new ones have serials of those that they replace.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ledger.partitions.runs import MARKER_RUN, Run, RunChunk, cut_rows, pack_row, run_of


class RunSpan(NamedTuple):
    """From row `first_row` of chunk `begin` to before row `end_row` of the chunk before `end`, among `chunks`
    of a partition."""

    chunks: Sequence[RunChunk]
    begin: int
    first_row: int
    end: int
    end_row: int

    @property
    def is_last(self) -> bool:
        """Whether the last run of the partition is one of them."""
        return self.end == len(self.chunks) and self.end_row == len(self.chunks[-1])

    @property
    def base(self) -> int:
        """The base offset of its first run."""
        return self.chunks[self.begin].row(self.first_row)[1]

    @property
    def kept(self) -> int:
        """How many live runs its chunks have besides."""
        head, tail = self.chunks[self.begin], self.chunks[self.end - 1]
        return self.first_row - head.head + len(tail) - self.end_row

    def run_count(self) -> int:
        return sum(_live(chunk) for chunk in self.chunks[self.begin : self.end]) - self.kept

    def size_bytes(self) -> int:
        return sum(sum(chunk.sizes(first, end)) for chunk, first, end in self._parts())

    def objects(self) -> list[int]:
        """Object numbers of the runs, one for each."""
        return [number for chunk, first, end in self._parts() for number in chunk.object_numbers(first, end)]

    def markers(self) -> list[Run]:
        """Those of the runs that are markers."""
        return [
            run_of(chunk.row(row))
            for chunk, first, end in self._parts()
            if chunk.has_markers(first, end)
            for row in range(first, end)
            if chunk.row(row)[3] >= MARKER_RUN
        ]

    def _parts(self) -> Iterator[tuple[RunChunk, int, int]]:
        """Its chunks, and of each the first row and one past the last."""
        for at in range(self.begin, self.end):
            chunk = self.chunks[at]
            first = self.first_row if at == self.begin else chunk.head
            yield chunk, first, self.end_row if at == self.end - 1 else len(chunk)

    def replaced(self, runs: Sequence[Run], chunk_runs: int) -> tuple[list[RunChunk], list[int]]:
        """All chunks of the partition with `runs` in the place of these, and the serials of chunks that are
        not what they were.

        Chunks have `chunk_runs`, and more where few large runs become many. A neighbour is joined where one
        chunk has capacity for both: else many swaps would leave many chunks of few runs.
        """
        chunks, begin, end = self.chunks, self.begin, self.end
        head, tail = chunks[begin], chunks[end - 1]
        rows = [head.packed(head.head, self.first_row), *map(pack_row, runs)]
        rows.append(tail.packed(self.end_row, len(tail)))
        count = self.kept + len(runs)
        if begin and _live(chunks[begin - 1]) + count <= chunk_runs:
            begin -= 1
            count += _live(chunks[begin])
            rows.insert(0, chunks[begin].packed(chunks[begin].head, len(chunks[begin])))
        if end < len(chunks) and _live(chunks[end]) + count <= chunk_runs:
            count += _live(chunks[end])
            rows.append(chunks[end].packed(chunks[end].head, len(chunks[end])))
            end += 1
        serials = [chunk.serial for chunk in chunks[begin:end]]
        # There are no serials between theirs.
        step = max(chunk_runs, -(-count // len(serials)))
        parts = zip(serials, cut_rows(b"".join(rows), step), strict=False)
        made = [RunChunk.of_rows(serial, part) for serial, part in parts]
        return [*chunks[:begin], *made, *chunks[end:]], serials


def find_span(chunks: Sequence[RunChunk], log_start: int, first: int, last: int) -> RunSpan | None:
    """The live runs from the one that begins with the offset `first` to the one that ends with `last`. None
    if no runs begin and end there. Where the run at `first` was dropped, the first live one is meant."""
    begin = bisect_left(chunks, first, key=_last)
    at = bisect_left(chunks, last, key=_last)
    if at == len(chunks) or first > last:
        return None
    head, tail = chunks[begin], chunks[at]
    row, end_row = head.find(first), tail.find(last) + 1
    _, base, *_ = head.row(row)
    is_first = begin == 0 and row == head.head
    begins = base == first or (is_first and first < base <= last and first < log_start)
    if not begins or tail.row(end_row - 1)[0] != last:
        return None
    return RunSpan(chunks, begin, row, at + 1, end_row)


def _live(chunk: RunChunk) -> int:
    return len(chunk) - chunk.head


def _last(chunk: RunChunk) -> int:
    return chunk.last
