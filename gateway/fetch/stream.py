"""One partition's stored batches from an offset on, read piece by piece. Pure: says what to read, and takes
it.

Every piece begins at the start of a batch. A batch that is cut off at the end of a piece is dropped and read
again from its start, so that batches are never joined from two reads. A batch before the offset is not read
again: only the rest of it is checked.

True offsets come from counting records, so every batch from the store has its CRC checked, also those before
the offset. Batches from the cache were checked before. In a segment offsets are those of headers, which no
CRC covers: they ascend, and a batch that comes after a gap does not overlap the next one.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.fetch.offset_index import Point, SparseOffsetIndex
from gateway.fetch.sound_batches import SoundBatch, overlaps_next
from ledger.batch.header import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    WALKED,
    BatchHeader,
    WalkedBatch,
    no_whole_batch,
    outgoing_head,
    read_header,
    verify_crc,
    walk_whole,
)
from ledger.formats.wal import TableBatch
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.types import Buffer

PATCHED_BYTES: Final = 16
"""Base offset, length and leader epoch: outside the CRC, and written again for each response."""
MAX_RUNS: Final = 500
"""Runs of one partition that one fetch may read."""
BATCHES_AT_ONCE: Final = 64
"""Taken until the caller may let others go on."""
COPIED_BYTES: Final = 4 * 1024
"""Batches shorter than this are sent as one buffer: two for each would take more memory than their records,
and more time than a copy."""
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


def outgoing(batches: Sequence[StoredBatch]) -> tuple[list[Buffer], int, int]:
    """What is sent of these batches, for each its patched head and a view of the rest, or a copy of adjacent
    short ones; their bytes and their records."""
    buffers: list[Buffer] = []
    short: list[Buffer] = []
    size = records = 0
    for _, _, base, last, _, _, data in batches:
        batch_bytes = len(data)
        size += batch_bytes
        records += last - base + 1
        pieces = short if batch_bytes < COPIED_BYTES else buffers
        if short and pieces is buffers:
            buffers.append(b"".join(short))
            short.clear()
        pieces.append(outgoing_head(base, batch_bytes - LENGTH_PREFIX_BYTES))
        pieces.append(data[PATCHED_BYTES:])
    if short:
        buffers.append(b"".join(short))
    return buffers, size, records


class ByteRange(NamedTuple):
    """Bytes [start, start + size) of the object of `run`, within the run."""

    run: Run
    start: int
    size: int


@dataclass(slots=True, eq=False)
class _Skipped:
    """A batch before the offset that the end of a read cut off: the rest of it is checked, and not kept."""

    position: int
    header: BatchHeader
    base: int
    last: int
    left: int
    """Bytes that are still to be read."""
    crc: int
    """Of the bytes read so far."""


class BatchStream:
    """The batches of a partition that hold offsets >= `offset` and begin below `bound`.

    `batches` are those read so far, `available` the bytes from the first of them to the end of the
    runs: exact when `found`, else an upper bound. `beyond` are the bytes in later runs, which the stream does
    not read. `log` is the partition; without it no damaged batch is skipped.
    """

    __slots__ = (
        "_at",
        "_cut",
        "_is_noted",
        "_next_offset",
        "_position",
        "_seek_bytes",
        "_skipping",
        "_table",
        "available",
        "batches",
        "beyond",
        "bound",
        "found",
        "log",
        "next_size",
        "offset",
        "offset_index",
        "runs",
    )

    def __init__(
        self,
        runs: Sequence[Run],
        offset: int,
        bound: int,
        offset_index: SparseOffsetIndex,
        log: PartitionLog | None = None,
    ) -> None:
        self.runs = runs
        self.offset = offset
        self.bound = bound
        self.offset_index = offset_index
        self.log = log
        self.batches: list[StoredBatch] = []
        self.next_size = 0
        """Size of the next batch if its header was seen, else 0."""
        self._at = 0
        self._cut: tuple[BatchHeader, memoryview] | None = None
        self._skipping: _Skipped | None = None
        self._table: Mapping[int, TableBatch] | None = None
        """By position: the batches of the current run, once a damaged one was skipped."""
        self._seek_bytes = FIRST_SEEK_BYTES
        self.available = runs[0].size if len(runs) == 1 else sum([run.size for run in runs])
        self.beyond = 0
        self.found = True
        self._next_offset = self._position = 0
        if runs:
            point = offset_index.before(runs[0], offset)
            self._next_offset, self._position = point.base, point.position
            self.available -= point.position - runs[0].start
            self.found = point.offset >= offset or runs[0].base >= offset
        self._is_noted = self.found

    @property
    def at_end(self) -> bool:
        return self._at == len(self.runs)

    def ranges(self, wanted: int) -> list[ByteRange]:
        """The ranges to read next for about `wanted` bytes of batches: at least the next batch, if its size
        is known."""
        if not self.found:
            wanted = max(wanted, self._seek_bytes)
            self._seek_bytes = min(2 * self._seek_bytes, LAST_SEEK_BYTES)
        left = max(wanted, self.next_size, HEADER_BYTES)
        ranges: list[ByteRange] = []
        position = self._position
        for run in self.runs[self._at :]:
            start = position if not ranges else run.start
            size = min(run.start + run.size - start, left)
            ranges.append(ByteRange(run, start, size))
            left -= size
            if left < HEADER_BYTES:
                break
        return ranges

    def bytes_to_read(self, wanted: int) -> int:
        """The most bytes that `ranges(wanted)` has."""
        unread = self.available
        if self.batches:
            unread -= sum([len(batch.data) for batch in self.batches])
        if not self.found and wanted < self._seek_bytes:
            wanted = self._seek_bytes
        return wanted if wanted < unread else unread

    def take_written(self, written: Callable[[int], memoryview | None], wanted: int) -> bool:
        """Take about `wanted` bytes of batches that were written here lately, as readers at the end of a log
        do. `written` has the whole batch of a position in the object of the last run, if it is there. False
        if one is not, or if the stream is anywhere but between batches of that run: nothing is taken then."""
        run = self.runs[-1]
        is_plain = self._skipping is None and self._cut is None and self._table is None and self.found
        if not (is_plain and run.dense and self._at == len(self.runs) - 1 and run.last < self.bound):
            return False
        position, base, end, taken = self._position, self._next_offset, run.start + run.size, 0
        batches: list[StoredBatch] = []
        while position < end and (taken < wanted or not batches):
            data = written(position)
            if data is None:
                return False
            _, _, _, attributes, last_offset_delta, max_timestamp = WALKED.unpack_from(data)
            position += len(data)
            taken += len(data)
            last = base + last_offset_delta
            batches.append(StoredBatch(run, position, base, last, attributes, max_timestamp, data))
            base = last + 1
        is_whole = position == end
        is_in_run = position <= end and base <= run.last + 1 and is_whole == (base > run.last)
        if not is_in_run or batches[0].last_offset < self.offset:
            return False
        self.batches += batches
        self._position, self._next_offset, self.next_size = position, base, 0
        self._at += is_whole
        return True

    def taking(
        self, byte_range: ByteRange, stored: Sequence[Buffer], cached: Sequence[Buffer] = ()
    ) -> Generator[int, None, int]:
        """Take what was read of a range, in the order of `ranges`: what the cache had of its beginning, and
        the rest from the store. Yields the batches taken since it last did, some at a time; the stream is not
        to be used before the end. Returns how many of the first bytes are whole batches that were checked.
        Raises Damaged; the stream is then before the damaged batch."""
        if self.at_end or self.runs[self._at] is not byte_range.run or self._position != byte_range.start:
            return 0  # the range before this one ended within a batch
        before = (self._position, self.next_size)
        begins_whole = self._skipping is None
        end = byte_range.run.start + byte_range.run.size
        self._cut = None
        for i, piece in enumerate((*cached, *stored)):
            view = memoryview(piece)[: end - self._position]
            if len(view) and not (yield from self._take_view(byte_range.run, view, i < len(cached))):
                break
        whole = self._position - byte_range.start if begins_whole else 0
        if self.at_end:
            return whole  # the bound was reached
        self._note_cut(byte_range.run)
        if self._position == end:
            self._finish_run(byte_range.run)
        elif (self._position, self.next_size) == before:
            raise Damaged(f"no batch can be read at {self._position}")
        return whole

    def _take_view(self, run: Run, view: memoryview, is_checked: bool) -> Generator[int, None, bool]:
        """False if it ends within a batch."""
        if self._skipping is not None:
            view = self._check_skipped(run, self._skipping, view)
        taken = batches = 0
        for walked in walk_whole(view):
            batches += 1
            if batches > BATCHES_AT_ONCE:
                yield batches
                batches = 0
            taken = walked.position + walked.size_bytes
            if self._at != len(self.runs):
                data = view[walked.position : taken]
                if not (is_checked or verify_crc(data)):
                    raise Damaged(f"the batch at {self._position} does not match its CRC")
                is_after_gap = not run.dense and walked.base_offset > self._next_offset
                if is_after_gap and not is_checked and not self._is_in_place(run, walked, view, taken):
                    self._cut = read_header(data), view[walked.position :]
                    return False
                self._batch(run, walked, data)
        yield batches
        if taken < len(view):
            self._cut = self._cut_off(run, view[taken:])
        return taken == len(view) and self._skipping is None

    def _batch(self, run: Run, walked: WalkedBatch, data: memoryview) -> None:
        _, size, stored_base, attributes, last_offset_delta, max_timestamp = walked
        base = self._next_offset
        last = base + last_offset_delta
        if not run.dense or self._table is not None or last_offset_delta < 0 or last > run.last:
            base, last = self._offsets(run, stored_base, last_offset_delta, size)
        self._position += size
        self._next_offset = last + 1
        if last < self.offset:
            self.available -= size
            return
        self.found = True
        if not self._is_noted:
            # The batch that holds the offset, or the first after it.
            self._is_noted = True
            self.offset_index.note(run, Point(self.offset, base, self._position - size))
        if base >= self.bound:
            self.stop()
            return
        self.batches.append(StoredBatch(run, self._position, base, last, attributes, max_timestamp, data))

    def _is_in_place(self, run: Run, walked: WalkedBatch, view: memoryview, end: int) -> bool:
        """Of a batch to be served that comes after a gap and ends at `end` of the view: whether its offsets
        are before those of the next batch. False if that is yet to be read."""
        last = walked.base_offset + walked.last_offset_delta
        if len(view) - end >= HEADER_BYTES:
            if overlaps_next(view, end, last):
                raise Damaged(f"the batch at {self._position} overlaps the one after it")
            return True
        left_in_run = run.start + run.size - self._position - walked.size_bytes
        return last < self.offset or left_in_run < HEADER_BYTES

    def _offsets(self, run: Run, stored_base: int, last_offset_delta: int, size: int) -> tuple[int, int]:
        """True base and last offset of the batch at the current position."""
        base = self._next_offset if run.dense else stored_base
        last = base + last_offset_delta
        if last_offset_delta < 0 or last > run.last or base < self._next_offset:
            raise Damaged(f"offsets {base} to {last} at {self._position} in a run up to {run.last}")
        if not run.dense and last < run.last and self._position + size == run.start + run.size:
            raise Damaged(f"the run up to offset {run.last} ends at {last}")
        if self._table is not None:
            row = self._table.get(self._position)
            if row is None or (row.size, row.record_count) != (size, last_offset_delta + 1):
                raise Damaged(f"the batch at {self._position} is not the one that its frame's table names")
        return base, last

    def _cut_off(self, run: Run, rest: memoryview) -> tuple[BatchHeader, memoryview] | None:
        """The header of the batch that begins in `rest` and ends after it, and `rest`. None if `rest` is
        shorter than a header."""
        left_in_run = run.start + run.size - self._position
        if len(rest) < HEADER_BYTES:
            if left_in_run < HEADER_BYTES:
                raise Damaged(str(no_whole_batch(rest)))
            return None
        header = read_header(rest)
        if header.magic != MAGIC or not max(HEADER_BYTES, len(rest)) < header.size_bytes <= left_in_run:
            raise Damaged(str(no_whole_batch(rest)))
        return header, rest

    def _note_cut(self, run: Run) -> None:
        """A batch was not read to its end: remember its size if its header says that it is to be served, else
        check the rest of it when that is read."""
        self.next_size = 0
        if self._cut is None:
            return
        header, begun = self._cut
        size = header.size_bytes
        base, last = self._offsets(run, header.base_offset, header.last_offset_delta, size)
        if last >= self.offset:
            self.found = True
            # One that is here comes after a gap, and what follows it is to be seen.
            self.next_size = size if len(begun) < size else size + HEADER_BYTES
            return
        crc = crc32c(begun[CRC_COVERS_FROM:])
        self._skipping = _Skipped(self._position, header, base, last, size - len(begun), crc)
        self._position += len(begun)

    def _check_skipped(self, run: Run, skipped: _Skipped, view: memoryview) -> memoryview:
        """Check what `view` has of the skipped batch. Returns what follows the batch."""
        begun = view[: skipped.left]
        skipped.crc = crc32c(begun, skipped.crc)
        skipped.left -= len(begun)
        self._position += len(begun)
        if skipped.left:
            return view[len(begun) :]
        self._skipping = None
        if skipped.crc != skipped.header.crc:
            self._position = skipped.position
            raise Damaged(f"the batch at {skipped.position} does not match its CRC")
        self._next_offset = skipped.last + 1
        self.available -= skipped.header.size_bytes
        self.offset_index.note(run, Point(self._next_offset, self._next_offset, self._position))
        return view[len(begun) :]

    @property
    def damaged_at(self) -> tuple[Run, int]:
        """The run and the position of the damaged batch that the stream is before."""
        return self.runs[self._at], self._position

    def skip_damaged(self, table: Sequence[TableBatch]) -> bool:
        """Go on after the damaged batch that the stream is before. `table` has the run's batches, as the
        table of their frame says. False if the table does not have that batch, or if the batch holds the
        offset."""
        run = self.runs[self._at]
        base = run.base
        for row in table:
            if row.start == self._position and base == self._next_offset:
                break
            base += row.record_count
        else:
            return False
        last = base + row.record_count - 1
        if last >= self.offset:
            return False
        self._table = {row.start: row for row in table}
        self._position += row.size
        self._next_offset = last + 1
        self.available -= row.size
        self.next_size = 0
        if self._position == run.start + run.size:
            self._finish_run(run)
        return True

    def skip_to(self, sound: Sequence[SoundBatch]) -> bool:
        """In a segment: go on with the first of the run's sound batches after the damaged one that the stream
        is before. False if there is none, or if the offset may be in what is left out."""
        following = next((batch for batch in sound if batch.start > self._position), None)
        if following is None or following.base > self.offset:
            return False
        self.available -= following.start - self._position
        self._position, self._next_offset = following
        self._skipping = None
        self.next_size = 0
        return True

    def _finish_run(self, run: Run) -> None:
        if self._next_offset != run.last + 1:
            raise Damaged(f"the run up to offset {run.last} ends at {self._next_offset - 1}")
        self._at += 1
        self.next_size = 0
        self._table = None
        if not self.at_end:
            following = self.runs[self._at]
            self._position, self._next_offset = following.start, following.base
            # After the first run no batch is before the offset.
            self.found = self.found or following.base >= self.offset
            self._is_noted = self._is_noted or self.found

    def stop(self) -> None:
        """End with the batches read so far: what follows them cannot be read."""
        self._at = len(self.runs)
        self.available = sum(len(batch.data) for batch in self.batches)
        self.beyond = 0

    def note_end(self, batch: StoredBatch) -> None:
        """The client gets everything up to this batch: remember where it will continue."""
        following = batch.last_offset + 1
        self.offset_index.note(batch.run, Point(following, following, batch.end_position))


def open_stream(
    log: PartitionLog, offset: int, bound: int, max_bytes: int, offset_index: SparseOffsetIndex
) -> BatchStream:
    """A stream over enough runs for `max_bytes` from `offset` on, of those that begin below `bound`."""
    runs = _below(bound, log.find(offset, max_bytes, MAX_RUNS))
    stream = BatchStream(runs, offset, bound, offset_index, log)
    is_enough = stream.found and stream.available >= max_bytes
    if runs and not is_enough and runs[-1].last + 1 < bound and len(runs) < MAX_RUNS:
        # The bytes before the offset in the first run were counted as if they could be served; how many
        # these are may not be known yet.
        skipped = sum(run.size for run in runs) - stream.available if stream.found else runs[0].size
        runs = _below(bound, log.find(offset, max_bytes + skipped, MAX_RUNS))
        stream = BatchStream(runs, offset, bound, offset_index, log)
    if len(runs) == MAX_RUNS and runs[-1].last + 1 < bound:
        stream.beyond = log.bytes_from(runs[-1].last + 1, max_bytes)
    return stream


def _below(bound: int, runs: list[Run]) -> list[Run]:
    """Those that begin below an offset. What follows an open transaction is not read, nor does it count
    towards min_bytes: else each batch of the transaction would wake readers of committed records."""
    if not runs or runs[-1].base < bound:
        return runs
    return [run for run in runs if run.base < bound]
