"""The batches of one run, read piece by piece: CRCs, counts and offsets."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from crc32c import crc32c

from ledger.auditing.damages import PUT_BACK, RESTORE_METADATA, Damage, DamageKind, Place, Report
from ledger.batch.header import CRC_COVERS_FROM, HEADER, HEADER_BYTES, MAGIC, BatchHeader
from ledger.formats.wal import TableBatch


class AuditedRun(NamedTuple):
    """A readable run, so that runs sort by object and position. `number` is that of its partition."""

    object_number: int
    start: int
    size: int
    base: int
    last: int
    number: int
    dense: bool

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.start + self.size

    @property
    def records(self) -> int:
        """Offsets that it holds."""
        return self.last - self.base + 1


class BatchSink(Protocol):
    """Who is called for the batches of a stretch of bytes, in their order."""

    def size_at(self, position: int) -> int | None:
        """The size of the batch there, where something else than the batch says it."""
        ...

    def batch(self, position: int, header: BatchHeader, is_right: bool) -> None:
        """A batch was read whole. `is_right`: it matches its CRC; otherwise its header says nothing."""
        ...

    def lost(self, position: int, size: int, why: str) -> None:
        """No batch begins here. `size` bytes are skipped: those of `size_at`, or all that are left."""
        ...


class BatchReader:
    """Takes the bytes [start, end) of an object, which are batches back to back, in any pieces. It holds at
    most a header."""

    def __init__(self, start: int, end: int, sink: BatchSink) -> None:
        self._sink = sink
        self._end = end
        self._position = start
        """Where the batch begins that is being read, and where the next one does."""
        self._next = start
        self._head = bytearray()
        self._header: BatchHeader | None = None
        self._left = 0
        """Bytes of the batch that have not come; without a header they are skipped."""
        self._crc = 0

    def feed(self, piece: memoryview) -> None:
        """The next bytes, in order and never beyond the end."""
        at, end = 0, len(piece)
        while at < end:
            if self._left:
                taken = min(self._left, end - at)
                if self._header is not None:
                    self._crc = crc32c(piece[at : at + taken], self._crc)
                self._left -= taken
                if not self._left:
                    self._finish_batch()
            else:
                taken = min(HEADER_BYTES - len(self._head), end - at)
                self._head += piece[at : at + taken]
                if len(self._head) == HEADER_BYTES:
                    head, self._head = self._head, bytearray()
                    self._begin(head)
            at += taken

    def finish(self) -> None:
        """All bytes have come."""
        if self._head:
            size = len(self._head)
            self._sink.lost(self._position, size, f"{size} bytes are too few for a batch header")

    def _begin(self, head: bytearray) -> None:
        header = BatchHeader._make(HEADER.unpack(head))
        expected = self._sink.size_at(self._position)
        room = self._end - self._position
        if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= room:
            why = f"no batch begins here (magic {header.magic}, {header.size_bytes} bytes of {room})"
        elif expected is not None and header.size_bytes != expected:
            why = f"the batch claims {header.size_bytes} bytes, its frame has {expected} for it"
        else:
            self._header = header
            self._crc = crc32c(memoryview(head)[CRC_COVERS_FROM:])
            self._go_on(header.size_bytes)
            return
        size = room if expected is None else expected
        self._sink.lost(self._position, size, why)
        self._go_on(size)

    def _go_on(self, size: int) -> None:
        """`size` bytes, of which a header has come, are of the batch that begins here."""
        self._left = size - HEADER_BYTES
        self._next = self._position + size
        if not self._left:
            self._finish_batch()

    def _finish_batch(self) -> None:
        header, self._header = self._header, None
        if header is not None:
            self._sink.batch(self._position, header, self._crc == header.crc)
        self._position = self._next


class RunCheck:
    """Takes the bytes of a dense run in any pieces and reports what is wrong with its batches."""

    def __init__(
        self,
        run: AuditedRun,
        place: Place,
        locator: str,
        report: Report,
        rows: Sequence[TableBatch] | None = None,
    ) -> None:
        """`rows`: the batches of the run by the table of its frame, if that is known. By it the batches after
        a damaged one are found."""
        self._run = run
        self._place = place
        self._locator = locator
        self._report = report
        self._rows = rows or ()
        self._next_row = 0
        self._reader = BatchReader(run.start, run.end, self)
        self.feed = self._reader.feed
        self.batches = 0
        self.records = 0
        self._offset = run.base
        """Of the next batch."""
        self._is_counted = True
        """False once it is unknown how many records there were."""

    def finish(self) -> None:
        """All bytes of the run have come."""
        self._reader.finish()
        if self._is_counted and self._offset != self._run.last + 1:
            what = (
                f"its batches hold {self._offset - self._run.base} records, the ledger counts "
                f"{self._run.records}"
            )
            self._miscounted(what, self._run.base, self._run.last, self._run.start)

    def size_at(self, position: int) -> int | None:
        row = self._row_at(position)
        return row.size if row is not None else None

    def batch(self, position: int, header: BatchHeader, is_right: bool) -> None:
        row = self._row_at(position)
        count = header.last_offset_delta + 1
        if not is_right:
            # Then its count is worth nothing either.
            if row is not None:
                count = row.record_count
            else:
                count = min(max(count, 1), self._run.last - self._offset + 1)
                self._is_counted = False
            self._damaged("the batch does not match its CRC-32C", count, position)
        elif count != header.record_count or (row is not None and count != row.record_count):
            others = [header.record_count] if row is None else [header.record_count, row.record_count]
            what = f"the batch has {count} offsets, and counts {' and '.join(map(str, others))} records"
            self._miscounted(what, self._offset, self._offset + max(count, 1) - 1, position)
        self.batches += 1
        self.records += count
        self._offset += count

    def lost(self, position: int, size: int, why: str) -> None:
        row = self._row_at(position)
        if row is None:
            self._damaged(
                f"{why}; the {size} bytes from there on cannot be read",
                self._run.last - self._offset + 1,
                position,
            )
            self._is_counted = False
        else:
            self._damaged(why, row.record_count, position)
            self._offset += row.record_count

    def _row_at(self, position: int) -> TableBatch | None:
        """The row of the batch that begins here. Rows are in order."""
        rows = self._rows
        while self._next_row < len(rows) and rows[self._next_row].start < position:
            self._next_row += 1
        found = rows[self._next_row] if self._next_row < len(rows) else None
        return found if found is not None and found.start == position else None

    def _damaged(self, what: str, count: int, position: int) -> None:
        offsets = self._offset, self._offset + max(count, 1) - 1
        self._say(DamageKind.DAMAGED_BATCH, what, PUT_BACK, offsets, position)

    def _miscounted(self, what: str, first: int, last: int, position: int) -> None:
        self._say(DamageKind.WRONG_COUNT, what, RESTORE_METADATA, (first, last), position)

    def _say(self, kind: DamageKind, what: str, remedy: str, offsets: tuple[int, int], position: int) -> None:
        topic, partition = self._place.topic, self._place.partition
        self._report(Damage(kind, what, remedy, topic, partition, *offsets, self._locator, position))
