"""A WAL object, or a file of a local log, with its readable runs: the frames that they are in, byte for byte.

What is to be read is asked for (`Reading`), so that an engine of any kind can read it, and no more than
PIECE_BYTES are needed at a time. Frames without a readable run are skipped: nothing depends on them, and
after a crash the last one may be torn.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from crc32c import crc32c

from ledger.auditing.batches import AuditedRun, RunCheck
from ledger.auditing.damages import CHECK_DISK, PUT_BACK, Damage, DamageKind, Place, Report
from ledger.formats import local_log
from ledger.formats.wal import (
    MAX_HEADER_BYTES,
    TRAILER_BYTES,
    DamagedFrame,
    FrameHead,
    TableBatch,
    is_table_of,
    read_frame_head,
    read_table,
)
from ledger.types import Buffer, Position

PIECE_BYTES: Final = 4 * 1024 * 1024
"""The most that is asked for at a time."""

T = TypeVar("T")
Reading: TypeAlias = Generator[Position, Buffer | None, T]
"""Yields what to read, and is sent its bytes; None if the store does not have them."""
PlaceOf: TypeAlias = Callable[[int], Place]
"""The partition of this number."""


@dataclass(slots=True)
class Checked:
    """What was read of one object."""

    batches: int = 0
    records: int = 0


class ObjectGone(Exception):
    """The store does not have bytes that it had in its list."""


class _FoundFrame(NamedTuple):
    """A WAL frame from `at` on; `head` None: there is none. `end`: where the next one is looked for."""

    at: int
    head: FrameHead | None
    end: int


class WalObjectCheck:
    """Checks one WAL object. Damages are reported as they are found."""

    def __init__(
        self, locator: str, size: int, runs: Sequence[AuditedRun], place_of: PlaceOf, report: Report
    ) -> None:
        """`runs`: ascending by start, within `size` bytes and without overlaps."""
        self.locator = locator
        self._size = size
        self._runs = runs
        self._place_of = place_of
        self._report = report
        self._reported = 0
        self._done = 0
        """Runs that are checked."""
        self.checked = Checked()

    def reading(self) -> Reading[None]:
        """Walk the frames up to the one with the last run. ObjectGone."""
        at = yield from self._first()
        while self._done < len(self._runs):
            found = yield from self._next(at)
            if isinstance(found, DamagedFrame):
                self._say(DamageKind.DAMAGED_FRAME, f"{found.reason}; its batches are checked alone", at)
                yield from self._check_alone(len(self._runs))
                return
            count = self._done
            while count < len(self._runs) and self._runs[count].start < found.end:
                count += 1
            if count > self._done and found.head is not None:
                yield from self._frame(found.at, found.head, count)
            for run in self._runs[self._done : count]:
                self._foreign(run, "these bytes are not batches of a frame")
            self._done, at = count, found.end

    def _first(self) -> Reading[int]:
        """Where the first frame begins."""
        yield from ()
        return 0

    def _next(self, at: int) -> Reading[_FoundFrame | DamagedFrame]:
        """The frame at or after `at`."""
        head = yield from self._head(at)
        return head if isinstance(head, DamagedFrame) else _FoundFrame(at, head, at + head.size)

    def _head(self, at: int) -> Reading[FrameHead | DamagedFrame]:
        data = yield from self._get(at, min(MAX_HEADER_BYTES, self._size - at))
        head = read_frame_head(data, at)
        if isinstance(head, FrameHead) and at + head.size > self._size:
            return DamagedFrame(at, f"{self._size - at} bytes of a frame of {head.size}", is_torn=True)
        return head

    def _frame(self, at: int, head: FrameHead, count: int) -> Reading[None]:
        """The frame from `at` on, which has the runs up to number `count`."""
        before = self._reported
        runs = self._runs[self._done : count]
        batches_at, end = at + head.header_bytes + head.table_bytes, at + head.size - TRAILER_BYTES
        outside = [run for run in runs if run.start < batches_at or run.end > end]
        for run in outside:
            self._foreign(run, "these bytes are not batches of a frame")
        runs = [run for run in runs if run not in outside]
        crc, table = yield from self._table(at, head)
        tables = _rows_of(table, at, runs, self._place_of) if table is not None else {}
        checks = [
            RunCheck(run, self._place_of(run.number), self.locator, self._count, tables.get(run))
            for run in runs
        ]
        crc = yield from self._batches(checks, runs, batches_at, end, crc)
        trailer = yield from self._get(end, TRAILER_BYTES)
        if crc == int.from_bytes(trailer):
            # Nothing of the frame has changed since it was written: so its table says the truth.
            for run in runs:
                if table is not None and run not in tables:
                    self._foreign(run, "the table of the frame does not have these bytes as its batches")
        elif self._reported == before:
            self._say(DamageKind.DAMAGED_FRAME, "table and batches do not match the CRC-32C of the frame", at)
        self._done = count

    def _table(self, at: int, head: FrameHead) -> Reading[tuple[int, memoryview | None]]:
        """(CRC-32C of the table, the table unless it is damaged or too long to be held)."""
        start, end = at + head.header_bytes, at + head.header_bytes + head.table_bytes
        if head.table_bytes <= PIECE_BYTES:
            table = yield from self._get(start, head.table_bytes)
            return crc32c(table), table if is_table_of(head, table) else None
        crc = 0
        while start < end:
            piece = yield from self._get(start, min(PIECE_BYTES, end - start))
            crc, start = crc32c(piece, crc), start + len(piece)
        return crc, None

    def _batches(
        self, checks: Sequence[RunCheck], runs: Sequence[AuditedRun], at: int, end: int, crc: int
    ) -> Reading[int]:
        """Feed the checks with the bytes [at, end). Returns the CRC-32C up to there."""
        first = 0
        while at < end:
            # Up to the next multiple, so that pieces are those of the reader.
            piece = yield from self._get(at, min(PIECE_BYTES - at % PIECE_BYTES, end - at))
            crc = crc32c(piece, crc)
            until = at + len(piece)
            for index in range(first, len(runs)):
                run = runs[index]
                if run.start >= until:
                    break
                checks[index].feed(piece[max(run.start - at, 0) : run.end - at])
                if run.end <= until:
                    self._finish(checks[index])
                    first = index + 1
            at = until
        return crc

    def _check_alone(self, count: int) -> Reading[None]:
        """The runs up to number `count`, without a frame."""
        for run in self._runs[self._done : count]:
            check = RunCheck(run, self._place_of(run.number), self.locator, self._count)
            yield from self._batches([check], [run], run.start, run.end, 0)
        self._done = count

    def _finish(self, check: RunCheck) -> None:
        check.finish()
        self.checked.batches += check.batches
        self.checked.records += check.records

    def _get(self, start: int, size: int) -> Reading[memoryview]:
        data = yield Position(self.locator, start, size)
        if data is None:
            raise ObjectGone
        return memoryview(data)

    def _foreign(self, run: AuditedRun, what: str) -> None:
        topic, _, partition, _ = self._place_of(run.number)
        offsets = run.base, run.last
        self._count(
            Damage(
                DamageKind.FOREIGN_BATCH,
                what,
                PUT_BACK,
                topic,
                partition,
                *offsets,
                self.locator,
                run.start,
            )
        )

    def _say(self, kind: DamageKind, what: str, position: int) -> None:
        self._count(Damage(kind, what, CHECK_DISK, object=self.locator, position=position))

    def _count(self, damage: Damage) -> None:
        self._reported += 1
        self._report(damage)


class LogFileCheck(WalObjectCheck):
    """The same of a file of a local log, whose frames have WAL frames in them."""

    def __init__(
        self, locator: str, size: int, runs: Sequence[AuditedRun], place_of: PlaceOf, report: Report
    ) -> None:
        super().__init__(locator, size, runs, place_of, report)
        self._header: local_log.LogHeader | None = None

    def _first(self) -> Reading[int]:
        data = yield from self._get(0, min(local_log.HEADER_BYTES, self._size))
        self._header = local_log.read_header(data, self.locator)
        return local_log.HEADER_BYTES

    def _next(self, at: int) -> Reading[_FoundFrame | DamagedFrame]:
        if self._header is None:
            return DamagedFrame(at, "the header of the file cannot be read", is_torn=False)
        size = max(min(local_log.FRAME_HEAD_BYTES, self._size - at), 0)
        data = yield from self._get(at, size)
        found = local_log.read_frame_extent(self._header, data, at)
        if isinstance(found, local_log.Torn):
            return DamagedFrame(at, found.reason, is_torn=False)
        if not found.batches_bytes:
            return _FoundFrame(at, None, found.end)
        head = yield from self._head(found.batches_at)
        if isinstance(head, DamagedFrame):
            return head
        return _FoundFrame(found.batches_at, head, found.end)


def _rows_of(
    table: memoryview, frame_start: int, runs: Sequence[AuditedRun], place_of: PlaceOf
) -> dict[AuditedRun, list[TableBatch]]:
    """Of each run its rows, if they cover it exactly and are all of its partition."""
    found: dict[AuditedRun, list[TableBatch]] = {}
    rows = read_table(table, frame_start)
    row = next(rows, None)
    for run in runs:
        place = place_of(run.number)
        mine: list[TableBatch] = []
        expected, is_own = run.start, True
        while row is not None and row[2].start < run.start:
            row = next(rows, None)
        while row is not None and row[2].start < run.end:
            row_topic, row_partition, batch = row
            is_own &= (row_topic, row_partition) == (place.topic_id, place.partition)
            is_own &= batch.start == expected
            expected = batch.start + batch.size
            mine.append(batch)
            row = next(rows, None)
        if is_own and expected == run.end:
            found[run] = mine
    return found
