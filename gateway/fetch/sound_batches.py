"""Which batches of a damaged run of a segment can still be read. Pure.

A header says where the next batch begins, and that field is outside of the CRC. So after a damaged batch the
next one is where the damaged header says only if everything from there on is sound, up to the next batch that
the segment's index names or to the end of the run. Else reading goes on at that one.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from ledger.batch.header import HEADER_BYTES, MAGIC, BatchHeader, read_header, verify_crc
from ledger.formats.segment import IndexEntry
from ledger.partitions.runs import Run

STEP_BATCHES: Final = 500


class SoundBatch(NamedTuple):
    """A batch at `start` (in the object) that is as it was written, as far as that can be known."""

    start: int
    base: int


class _Chain(NamedTuple):
    """Sound batches back to back, and where they end: byte, and the least offset that may follow."""

    batches: list[SoundBatch]
    stopped_at: int
    next_base: int


class SoundBatches:
    """A search of one run. `found` is complete when `steps` has ended."""

    def __init__(self, run: Run, data: memoryview, entries: Sequence[IndexEntry]) -> None:
        """`data` of the whole run; `entries` of its segment's index, none if that cannot be read."""
        self._run = run
        self._data = data
        self._end = run.start + run.size
        inside = [entry for entry in entries if run.start <= entry.position < self._end]
        self._bases = {entry.position: entry.offset for entry in inside}
        self._positions = [entry.position for entry in inside]
        self.found: list[SoundBatch] = []

    def steps(self) -> Iterator[None]:
        """Each looks at STEP_BATCHES at most."""
        position, base = self._run.start, self._run.base
        while position < self._end:
            anchor, anchor_base = self._anchor_after(position)
            chain = yield from self._chain(position, base, anchor, anchor_base)
            self.found += chain.batches
            base = chain.next_base
            after = self._claimed_end(chain.stopped_at)
            if chain.stopped_at < after < anchor:
                rest = yield from self._chain(after, base, anchor, anchor_base)
                if rest.stopped_at == anchor:
                    self.found += rest.batches
                    base = rest.next_base
            position = anchor

    def _anchor_after(self, position: int) -> tuple[int, int]:
        """The next place where a batch certainly begins, with its offset, or the end of the run."""
        at = bisect_right(self._positions, position)
        if at == len(self._positions):
            return self._end, self._run.last + 1
        return self._positions[at], self._bases[self._positions[at]]

    def _chain(
        self, position: int, base: int, anchor: int, anchor_base: int
    ) -> Generator[None, None, _Chain]:
        """Sound batches from here up to the anchor."""
        batches: list[SoundBatch] = []
        while position < anchor:
            header = self._sound_at(position, base, anchor, anchor_base)
            if header is None:
                break
            batches.append(SoundBatch(position, header.base_offset))
            position += header.size_bytes
            base = header.last_offset + 1
            if len(batches) % STEP_BATCHES == 0:
                yield
        return _Chain(batches, position, base)

    def _sound_at(self, position: int, base: int, anchor: int, anchor_base: int) -> BatchHeader | None:
        view = self._data[position - self._run.start :]
        if anchor - position < HEADER_BYTES or view[16] != MAGIC:
            return None
        header = read_header(view)
        first, last = header.base_offset, header.last_offset
        end = position + header.size_bytes
        if (
            not HEADER_BYTES <= header.size_bytes <= anchor - position
            or not base <= first <= last < anchor_base
        ):
            return None
        if self._bases.get(position, first) != first or not verify_crc(view[: header.size_bytes]):
            return None
        if first > base and end < anchor and overlaps_next(view, header.size_bytes, last):
            return None
        return header

    def _claimed_end(self, position: int) -> int:
        """Where the batch at `position` ends, by its header."""
        view = self._data[position - self._run.start :]
        return position + read_header(view).size_bytes if len(view) >= HEADER_BYTES else position


def overlaps_next(view: memoryview, size: int, last: int) -> bool:
    """Whether the batch after the first `size` bytes begins at the offset `last` or before it. After a gap
    one of the two base offsets is wrong then: no CRC covers them."""
    return len(view) - size >= HEADER_BYTES and read_header(view, size).base_offset <= last
