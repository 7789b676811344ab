"""The batches of one run, read piece by piece: CRCs, counts and offsets."""

from collections.abc import Sequence
from typing import NamedTuple

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


class RunCheck:
    """Takes the bytes of a dense run in any pieces and reports what is wrong with its batches. It holds at
    most a header."""

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
        self.batches = 0
        self.records = 0
        self._position = run.start
        """Where the batch begins that is being read, and its offset."""
        self._offset = run.base
        self._head = bytearray()
        self._header: BatchHeader | None = None
        self._left = 0
        """Bytes of the batch that have not come; without a header they are skipped."""
        self._crc = 0
        self._is_counted = True
        """False once it is unknown how many records there were."""

    def feed(self, piece: memoryview) -> None:
        """The next bytes of the run, in order and never beyond its end."""
        at, end = 0, len(piece)
        while at < end:
            if self._left:
                taken = min(self._left, end - at)
                if self._header is not None:
                    self._crc = crc32c(piece[at : at + taken], self._crc)
                at += taken
                self._left -= taken
                if not self._left:
                    self._end()
                continue
            taken = min(HEADER_BYTES - len(self._head), end - at)
            self._head += piece[at : at + taken]
            at += taken
            if len(self._head) == HEADER_BYTES:
                head, self._head = self._head, bytearray()
                self._begin(head)

    def finish(self) -> None:
        """All bytes of the run have come."""
        if self._head:
            self._damaged(f"{len(self._head)} bytes are too few for a batch header", self._run.last)
        elif self._is_counted and self._offset != self._run.last + 1:
            self._miscounted(
                f"its batches hold {self._offset - self._run.base} records, the ledger counts "
                f"{self._run.records}",
                self._run.base,
                self._run.last,
                self._run.start,
            )

    def _begin(self, head: bytearray) -> None:
        header = BatchHeader._make(HEADER.unpack(head))
        row = self._row()
        room = self._run.end - self._position
        if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= room:
            wrong = f"no batch begins here (magic {header.magic}, {header.size_bytes} bytes of {room})"
        elif row is not None and header.size_bytes != row.size:
            wrong = f"the batch claims {header.size_bytes} bytes, its frame has {row.size} for it"
        else:
            self._header = header
            self._crc = crc32c(memoryview(head)[CRC_COVERS_FROM:])
            self._left = header.size_bytes - HEADER_BYTES
            if not self._left:
                self._end()
            return
        self._lose(wrong, row)

    def _lose(self, wrong: str, row: TableBatch | None) -> None:
        """Skip a batch of which not even the size is known by itself."""
        if row is None:
            rest = self._run.end - self._position
            self._damaged(f"{wrong}; the {rest} bytes from there on cannot be read", self._run.last)
            self._is_counted = False
            self._left = rest - HEADER_BYTES
            return
        self._damaged(wrong, self._offset + row.record_count - 1)
        self._left = row.size - HEADER_BYTES
        if not self._left:
            self._end()

    def _end(self) -> None:
        """The last byte of a batch has come."""
        header, self._header = self._header, None
        row = self._row()
        if header is None:
            if row is not None:
                self._advance(row.size, row.record_count)
            return
        count = header.last_offset_delta + 1
        if self._crc != header.crc:
            # Then its count is worth nothing either.
            if row is not None:
                count = row.record_count
            else:
                count = min(max(count, 1), self._run.last - self._offset + 1)
                self._is_counted = False
            self._damaged("the batch does not match its CRC-32C", self._offset + count - 1)
        elif count != header.record_count or (row is not None and count != row.record_count):
            others = [header.record_count] if row is None else [header.record_count, row.record_count]
            self._miscounted(
                f"the batch has {count} offsets, and counts {' and '.join(map(str, others))} records",
                self._offset,
                self._offset + max(count, 1) - 1,
                self._position,
            )
        self.batches += 1
        self.records += count
        self._advance(header.size_bytes, count)

    def _row(self) -> TableBatch | None:
        """The row of the batch that begins here. Rows are in order."""
        rows = self._rows
        while self._next_row < len(rows) and rows[self._next_row].start < self._position:
            self._next_row += 1
        found = rows[self._next_row] if self._next_row < len(rows) else None
        return found if found is not None and found.start == self._position else None

    def _advance(self, size: int, count: int) -> None:
        self._position += size
        self._offset += count

    def _damaged(self, what: str, last: int) -> None:
        offsets = self._offset, max(last, self._offset)
        self._say(DamageKind.DAMAGED_BATCH, what, PUT_BACK, offsets, self._position)

    def _miscounted(self, what: str, first: int, last: int, position: int) -> None:
        self._say(DamageKind.WRONG_COUNT, what, RESTORE_METADATA, (first, last), position)

    def _say(self, kind: DamageKind, what: str, remedy: str, offsets: tuple[int, int], position: int) -> None:
        topic, _, partition = self._place
        self._report(Damage(kind, what, remedy, topic, partition, *offsets, self._locator, position))
