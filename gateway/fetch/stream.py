"""One partition's stored batches from an offset on, read piece by piece. Pure: says what to read, takes it.

Every piece handed in begins at the start of a batch. A batch that is cut off at the end of a piece is
dropped and read again from its start, so that batches are never joined from two reads.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.fetch.hints import Point, PositionHints
from ledger.batch.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    WalkedBatch,
    no_whole_batch,
    outgoing_head,
    read_header,
    walk_whole,
)
from ledger.partitions import PartitionLog
from ledger.runs import Run
from ledger.types import Buffer

PATCHED_BYTES: Final = 16
"""Base offset, length and leader epoch: outside the CRC, and written anew on the way out."""
MAX_RUNS: Final = 500
"""Runs of one partition that one fetch looks at."""
FIRST_SEEK_BYTES: Final = 256 * 1024
LAST_SEEK_BYTES: Final = 4 * 1024 * 1024


class Damaged(Exception):
    """Stored bytes are not the batches that the ledger says they are."""


class StoredBatch(NamedTuple):
    """A batch with its true offsets; `data` is all of it as stored."""

    run: Run
    end_position: int
    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp: int
    data: memoryview

    def outgoing(self) -> tuple[bytes, memoryview]:
        """What is sent: patched head, and a view of the rest."""
        length = len(self.data) - LENGTH_PREFIX_BYTES
        return outgoing_head(self.base_offset, length), self.data[PATCHED_BYTES:]


class Stretch(NamedTuple):
    """Bytes [start, start + size) of the object of `run`, of which they are a part."""

    run: Run
    start: int
    size: int


class BatchStream:
    """The batches of a partition that hold offsets >= `offset` and begin below `bound`.

    `batches` are those read so far, `available` the bytes from the first of them to the end of the
    runs: exact when `found`, else at most so many. `beyond` are bytes in runs behind those looked at.
    """

    __slots__ = (
        "_at",
        "_cut",
        "_next_offset",
        "_position",
        "_seek_bytes",
        "available",
        "batches",
        "beyond",
        "bound",
        "found",
        "hints",
        "next_size",
        "offset",
        "runs",
    )

    def __init__(self, runs: Sequence[Run], offset: int, bound: int, hints: PositionHints) -> None:
        self.runs = runs
        self.offset = offset
        self.bound = bound
        self.hints = hints
        self.batches: list[StoredBatch] = []
        self.next_size = 0
        """Size of the next batch if its header was seen, else 0."""
        self._at = 0
        self._cut: BatchHeader | None = None
        self._seek_bytes = FIRST_SEEK_BYTES
        self.available = sum(run.size for run in runs)
        self.beyond = 0
        self.found = True
        self._next_offset = self._position = 0
        if runs:
            point = hints.before(runs[0], offset)
            self._next_offset, self._position = point.base, point.position
            self.available -= point.position - runs[0].start
            self.found = point.offset >= offset or runs[0].base >= offset

    @property
    def at_end(self) -> bool:
        return self._at == len(self.runs)

    def stretches(self, want: int) -> list[Stretch]:
        """What to read next for about `want` bytes of batches: at least the next batch, as far as its
        size is known."""
        if not self.found:
            want = max(want, self._seek_bytes)
            self._seek_bytes = min(2 * self._seek_bytes, LAST_SEEK_BYTES)
        left = max(want, self.next_size, HEADER_BYTES)
        asked: list[Stretch] = []
        position = self._position
        for run in self.runs[self._at :]:
            start = position if not asked else run.start
            size = min(run.start + run.size - start, left)
            asked.append(Stretch(run, start, size))
            left -= size
            if left < HEADER_BYTES:
                break
        return asked

    def to_read(self, want: int) -> int:
        """How many bytes `stretches` names at most."""
        unread = self.available
        if self.batches:
            unread -= sum([len(batch.data) for batch in self.batches])
        if not self.found and want < self._seek_bytes:
            want = self._seek_bytes
        return want if want < unread else unread

    def take(self, stretch: Stretch, pieces: Sequence[Buffer]) -> int:
        """Take up what was read of a stretch that `stretches` named, in its order. Returns how many of
        its bytes are whole batches. Raises Damaged."""
        if self.at_end or self.runs[self._at] is not stretch.run or self._position != stretch.start:
            return 0  # the stretch before this one ended within a batch
        before = (self._position, self.next_size)
        end = stretch.run.start + stretch.run.size
        self._cut = None
        for piece in pieces:
            view = memoryview(piece)[: end - self._position]
            if len(view) and not self._take_view(stretch.run, view):
                break
        whole = self._position - stretch.start
        if self.at_end:
            return whole  # the bound was reached
        self._look_at_cut(stretch.run)
        if self._position == end:
            self._finish_run(stretch.run)
        elif (self._position, self.next_size) == before:
            raise Damaged(f"no batch can be read at {self._position}")
        return whole

    def _take_view(self, run: Run, view: memoryview) -> bool:
        """False if it ends within a batch."""
        taken = 0
        for walked in walk_whole(view):
            taken = walked.position + walked.size_bytes
            if self._at != len(self.runs):
                self._batch(run, walked, view)
        if taken < len(view):
            self._cut = self._cut_off(run, view[taken:])
            return False
        return True

    def _batch(self, run: Run, walked: WalkedBatch, view: memoryview) -> None:
        position, size, stored_base, attributes, last_offset_delta, max_timestamp = walked
        base, last = self._offsets(run, stored_base, last_offset_delta)
        self._position += size
        self._next_offset = last + 1
        if last < self.offset:
            self.available -= size
            return
        if not self.found:
            self._arrive(run, base, self._position - size)
        if base >= self.bound:
            self.stop()
            return
        data = view[position : position + size]
        self.batches.append(StoredBatch(run, self._position, base, last, attributes, max_timestamp, data))

    def _offsets(self, run: Run, stored_base: int, last_offset_delta: int) -> tuple[int, int]:
        """True base and last offset of the batch at the present position."""
        base = self._next_offset if run.dense else stored_base
        last = base + last_offset_delta
        if last_offset_delta < 0 or last > run.last or base < self._next_offset:
            raise Damaged(f"offsets {base} to {last} at {self._position} in a run up to {run.last}")
        return base, last

    def _arrive(self, run: Run, base: int, position: int) -> None:
        """The batch that holds the offset, or the first behind it, is here."""
        if not self.found:
            self.found = True
            self.hints.note(run, Point(self.offset, base, position))

    def _cut_off(self, run: Run, rest: memoryview) -> BatchHeader | None:
        """Header of the batch that begins `rest` and goes on behind it; None if not even that is there."""
        left_in_run = run.start + run.size - self._position
        if len(rest) < HEADER_BYTES:
            if left_in_run < HEADER_BYTES:
                raise Damaged(str(no_whole_batch(rest)))
            return None
        header = read_header(rest)
        if header.magic != MAGIC or not max(HEADER_BYTES, len(rest)) < header.size_bytes <= left_in_run:
            raise Damaged(str(no_whole_batch(rest)))
        return header

    def _look_at_cut(self, run: Run) -> None:
        """Of a batch of which only the header was read: pass it by unread if it ends before the offset,
        else remember its size."""
        self.next_size = 0
        if self._cut is None:
            return
        base, last = self._offsets(run, self._cut.base_offset, self._cut.last_offset_delta)
        if last >= self.offset:
            self._arrive(run, base, self._position)
            self.next_size = self._cut.size_bytes
            return
        self._position += self._cut.size_bytes
        self._next_offset = last + 1
        self.available -= self._cut.size_bytes
        self.hints.note(run, Point(last + 1, last + 1, self._position))

    def _finish_run(self, run: Run) -> None:
        if run.dense and self._next_offset != run.last + 1:
            raise Damaged(f"the run up to offset {run.last} ends at {self._next_offset - 1}")
        self._at += 1
        self.next_size = 0
        if not self.at_end:
            following = self.runs[self._at]
            self._position, self._next_offset = following.start, following.base
            # Behind the first run nothing is to be skipped any more.
            self.found = self.found or following.base >= self.offset

    def stop(self) -> None:
        """Behind the batches read so far lies something that cannot be read: end with them."""
        self._at = len(self.runs)
        self.available = sum(len(batch.data) for batch in self.batches)
        self.beyond = 0

    def note_end(self, batch: StoredBatch) -> None:
        """The client has got everything up to this batch: remember where it will go on."""
        following = batch.last_offset + 1
        self.hints.note(batch.run, Point(following, following, batch.end_position))


def open_stream(
    log: PartitionLog, offset: int, bound: int, max_bytes: int, hints: PositionHints
) -> BatchStream:
    """A stream over enough runs for `max_bytes` from `offset` on."""
    runs = log.find(offset, max_bytes, MAX_RUNS)
    stream = BatchStream(runs, offset, bound, hints)
    is_enough = stream.found and stream.available >= max_bytes
    if runs and not is_enough and runs[-1].last + 1 < log.high_watermark and len(runs) < MAX_RUNS:
        # What lies before the offset in the first run was counted as if it could be served; how much that
        # is may not be known yet.
        skipped = sum(run.size for run in runs) - stream.available if stream.found else runs[0].size
        runs = log.find(offset, max_bytes + skipped, MAX_RUNS)
        stream = BatchStream(runs, offset, bound, hints)
    if len(runs) == MAX_RUNS:
        stream.beyond = log.bytes_from(runs[-1].last + 1, max_bytes)
    return stream
