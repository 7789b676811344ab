"""A segment with its readable runs: header, every batch, trailer and index, byte for byte.

The whole of a segment is read, also where its runs are below the log start offset: its CRC covers all of it.
The runs of the ledger begin at batches, so that a batch whose size is damaged takes no more with it than the
rest of its run.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crc32c import crc32c

from ledger.auditing.batches import AuditedRun, BatchReader
from ledger.auditing.damages import CHECK_DISK, PUT_BACK, RESTORE_METADATA, Damage, DamageKind, Place, Report
from ledger.auditing.frames import PIECE_BYTES, Checked, ObjectGone, PlaceOf, Reading
from ledger.auditing.markers import REMEDY, MarkerCheck, MergedMarker, by_partition, flaw_of_marker
from ledger.batch.header import BatchHeader
from ledger.errors import StoreDamaged
from ledger.formats.segment import (
    ENTRY_BYTES,
    HEAD_BYTES,
    INDEX_HEAD_BYTES,
    TRAILER_BYTES,
    IndexEntry,
    SegmentHead,
    index_entries,
    index_head,
    read_head,
    read_trailer,
)
from ledger.keys import index_locator, segment_name
from ledger.types import Position

PUT_INDEX_BACK: Final = "no record is lost by this: reads do without an index; put it back from a copy"
REMEDIES: Final = MappingProxyType({DamageKind.DAMAGED_BATCH: PUT_BACK, DamageKind.TRANSACTION: REMEDY})
"""Of damages of a run; of others RESTORE_METADATA."""
INDEX_PIECE_BYTES: Final = 4_096 * ENTRY_BYTES


class SegmentCheck:
    """Checks one segment and its index. Damages are reported as they are found."""

    def __init__(
        self,
        locator: str,
        size: int,
        runs: Sequence[AuditedRun],
        place_of: PlaceOf,
        report: Report,
        markers: Sequence[MergedMarker] = (),
    ) -> None:
        """`runs`: at least one, ascending by start, within `size` bytes and without overlaps. `markers`:
        that must be in them, ascending."""
        self.locator = locator
        self._size = size
        self._end = size - TRAILER_BYTES
        self._runs = runs
        self._place_of = place_of
        self._report = report
        self._reported = 0
        self._seen = _Seen()
        self._markers = by_partition(markers)
        self.checked = Checked()

    def reading(self) -> Reading[None]:
        """Read all of it once. ObjectGone."""
        head = yield from self._head()
        index = _IndexCheck(self.locator, self._report)
        interval = yield from index.begin()
        self._seen = _Seen(interval)
        crc = 0
        for start, end, run in self._stretches():
            crc = yield from self._stretch(start, end, run, crc, index)
        yield from index.finish()
        yield from self._trailer(head, crc)

    def _head(self) -> Reading[SegmentHead | None]:
        data = yield from _get(self.locator, 0, min(HEAD_BYTES, self._size))
        name = segment_name(self.locator)
        for number in {run.number for run in self._runs}:
            place = self._place_of(number)
            if name is not None and (name.topic_id, name.partition) != (place.topic_id, place.partition):
                self._foreign(number, place)
        try:
            head = read_head(data, "the segment")
        except StoreDamaged as error:
            self._segment(str(error), 0)
            return None
        if name is not None and (head.base, head.created_ms) != (name.base, name.created_ms):
            self._segment("its header has not the base offset and creation time of its key", 0)
        return head

    def _trailer(self, head: SegmentHead | None, crc: int) -> Reading[None]:
        if self._size < HEAD_BYTES + TRAILER_BYTES:
            return
        data = yield from _get(self.locator, self._end, TRAILER_BYTES)
        try:
            trailer = read_trailer(data, "the segment")
        except StoreDamaged as error:
            self._segment(str(error), self._end)
            return
        if self._reported:
            return  # what follows is a consequence of that
        seen = self._seen
        if trailer.crc != crc:
            self._segment("its batches do not match its CRC-32C", self._end)
        elif trailer.last != seen.last:
            self._segment(f"its last offset is {seen.last}, its trailer has {trailer.last}", self._end)
        if head is not None and head.messages != seen.messages:
            self._segment(f"it has {seen.messages} messages, its header {head.messages}", 0)

    def _stretches(self) -> Iterator[tuple[int, int, AuditedRun | None]]:
        """Bytes from batch to batch, all of them together: those of a run, and those of none."""
        at = HEAD_BYTES
        for run in self._runs:
            if run.start < at or run.end > self._end:
                self._say_of(run, DamageKind.FOREIGN_BATCH, "these bytes are not batches of the segment")
                continue
            if run.start > at:
                yield at, run.start, None
            yield run.start, run.end, run
            at = run.end
        if at < self._end:
            yield at, self._end, None

    def _stretch(
        self, start: int, end: int, run: AuditedRun | None, crc: int, index: "_IndexCheck"
    ) -> Reading[int]:
        """Returns the CRC-32C up to its end."""
        sink = _Stretch(self, run, MarkerCheck(self._markers_of(run)))
        reader = BatchReader(start, end, sink)
        while start < end:
            piece = yield from _get(self.locator, start, min(PIECE_BYTES - start % PIECE_BYTES, end - start))
            crc = crc32c(piece, crc)
            reader.feed(piece)
            start += len(piece)
            yield from self._read_markers(sink)
            yield from index.compare(self._seen)
        reader.finish()
        sink.finish()
        return crc

    def _markers_of(self, run: AuditedRun | None) -> list[MergedMarker]:
        if run is None:
            return []
        mine = self._markers.get(run.number, [])
        begin = bisect_left(mine, run.base, key=_offset)
        return mine[begin : bisect_right(mine, run.last, key=_offset)]

    def _read_markers(self, stretch: "_Stretch") -> Reading[None]:
        """Look into the control batches that have come and must be markers."""
        found, stretch.found = stretch.found, []
        for marker, position, size in found:
            data = yield from _get(self.locator, position, size)
            flaw = flaw_of_marker(marker, data)
            if flaw:
                stretch.say_of_marker(marker, flaw, position)

    def see(self, position: int, header: BatchHeader) -> bool:
        """Note a batch that is right. False if its offsets do not ascend."""
        seen = self._seen
        ascends = header.base_offset > seen.last and header.last_offset_delta >= 0
        seen.batch(position, header)
        self.checked.batches += 1
        self.checked.records += header.record_count
        return ascends

    def lose(self) -> None:
        """A batch could not be read: what follows from its header is unknown."""
        self._seen.is_whole = False

    def say(
        self, run: AuditedRun | None, kind: DamageKind, what: str, offsets: tuple[int, int], position: int
    ) -> None:
        """A damage of a readable run, or of bytes that no reader needs."""
        if run is None:
            self._segment(what, position)
            return
        place = self._place_of(run.number)
        remedy = REMEDIES.get(kind, RESTORE_METADATA)
        self._count(
            Damage(kind, what, remedy, place.topic, place.partition, *offsets, self.locator, position)
        )

    def allows_gaps(self, run: AuditedRun) -> bool:
        return self._place_of(run.number).compacts

    def _foreign(self, number: int, place: Place) -> None:
        what = f"the key is that of another partition than {place.topic}-{place.partition}"
        for run in self._runs:
            if run.number == number:
                self._say_of(run, DamageKind.FOREIGN_BATCH, what)
                return

    def _say_of(self, run: AuditedRun, kind: DamageKind, what: str) -> None:
        self.say(run, kind, what, (run.base, run.last), run.start)

    def _segment(self, what: str, position: int) -> None:
        self._count(
            Damage(DamageKind.DAMAGED_SEGMENT, what, CHECK_DISK, object=self.locator, position=position)
        )

    def _count(self, damage: Damage) -> None:
        self._reported += 1
        self._report(damage)


class _Seen:
    """What the batches of a segment have said so far, and the index entries that they should have."""

    def __init__(self, interval: int = 0) -> None:
        self.last = -1
        self.messages = 0
        self.is_whole = True
        self.entries: list[IndexEntry] = []
        """Not compared yet."""
        self._interval = interval
        self._since = interval

    def batch(self, position: int, header: BatchHeader) -> None:
        if self._interval and self._since >= self._interval:
            self.entries.append(IndexEntry(header.base_offset, position))
            self._since = 0
        self._since += header.record_count
        self.messages += header.record_count
        self.last = max(self.last, header.base_offset + header.last_offset_delta)


class _Stretch:
    """The batches of one run, or of bytes that belong to none (`BatchSink`)."""

    def __init__(self, check: SegmentCheck, run: AuditedRun | None, markers: MarkerCheck) -> None:
        self._check = check
        self._run = run
        self._markers = markers
        self.found: list[tuple[MergedMarker, int, int]] = []
        """Markers with position and size of their batches, of which only the headers were looked at."""
        self._expected = 0 if run is None else run.base
        """The next offset of the run."""
        self._is_whole = True

    def size_at(self, position: int) -> int | None:
        return None

    def batch(self, position: int, header: BatchHeader, is_right: bool) -> None:
        base, last = header.base_offset, header.last_offset
        if not is_right:
            self._lose(position, "the batch does not match its CRC-32C", min(max(last, base), self._last))
            return
        if not self._check.see(position, header) or (self._run is not None and base < self._expected):
            what = f"the offsets of the batch, {base} to {last}, do not ascend"
            self._say(DamageKind.OVERLAP, what, (base, max(last, base)), position)
        elif self._is_miscounted(header):
            what = f"the batch has {header.last_offset_delta + 1} offsets, and counts {header.record_count}"
            self._say(DamageKind.WRONG_COUNT, f"{what} records", (base, last), position)
        elif self._run is not None:
            self._check_offsets(self._run, base, last, position)
        self._check_marker(position, header)
        self._expected = max(self._expected, last + 1)

    def lost(self, position: int, size: int, why: str) -> None:
        self._lose(position, f"{why}; the {size} bytes from there on cannot be read", self._last)

    def finish(self) -> None:
        """All bytes of the stretch have come."""
        run = self._run
        if run is not None and self._is_whole and self._expected <= run.last:
            self._gap(run, run.last, run.end)

    def say_of_marker(self, marker: MergedMarker, what: str, position: int) -> None:
        self._say(DamageKind.TRANSACTION, what, (marker.offset, marker.offset), position)

    def _check_marker(self, position: int, header: BatchHeader) -> None:
        marker, flaw = self._markers.batch(header)
        if marker is not None and flaw:
            self.say_of_marker(marker, flaw, position)
        elif marker is not None:
            self.found.append((marker, position, header.size_bytes))

    def _is_miscounted(self, header: BatchHeader) -> bool:
        count = header.last_offset_delta + 1
        may_lack = self._run is None or self._check.allows_gaps(self._run)
        return header.record_count > count or (not may_lack and header.record_count != count)

    @property
    def _last(self) -> int:
        return self._expected if self._run is None else self._run.last

    def _check_offsets(self, run: AuditedRun, base: int, last: int, position: int) -> None:
        if last > run.last:
            what = f"the batch has offsets to {last}, the ledger gives the run those to {run.last}"
            self._say(DamageKind.WRONG_COUNT, what, (base, last), position)
        elif base > self._expected and self._is_whole:
            self._gap(run, base - 1, position)

    def _gap(self, run: AuditedRun, last: int, position: int) -> None:
        if not self._check.allows_gaps(run):
            self._say(DamageKind.GAP, "these offsets are in no batch", (self._expected, last), position)

    def _lose(self, position: int, what: str, last: int) -> None:
        self._check.lose()
        self._is_whole = False
        offsets = self._expected, max(last, self._expected)
        self._say(DamageKind.DAMAGED_BATCH, what, offsets, position)
        self._expected = offsets[1] + 1

    def _say(self, kind: DamageKind, what: str, offsets: tuple[int, int], position: int) -> None:
        self._check.say(self._run, kind, what, offsets, position)


@dataclass
class _IndexCheck:
    """Compares the entries of an index, read bit by bit, with those that the batches should have."""

    locator: str
    report: Report

    def __post_init__(self) -> None:
        self._key = index_locator(self.locator)
        self._position = INDEX_HEAD_BYTES
        self._left = 0
        """Entries that were not read."""
        self._read: list[IndexEntry] = []
        self._at = 0
        self._is_over = False

    def begin(self) -> Reading[int]:
        """Read its header. Returns the interval; 0 if there is nothing to compare with."""
        data = yield Position(self._key, 0, INDEX_HEAD_BYTES)
        if data is None:
            self._damaged("the index is missing or too short for its header", 0)
            return 0
        try:
            self._left, interval = index_head(data, "the index")
        except StoreDamaged as error:
            self._damaged(str(error), 0)
            return 0
        return interval

    def compare(self, seen: _Seen) -> Reading[None]:
        """Take the entries that were seen, and compare them with the next ones."""
        expected, seen.entries = seen.entries, []
        if not seen.is_whole:
            self._is_over = True
        for entry in expected:
            found = yield from self._next()
            if self._is_over:
                return
            if found != entry:
                what = f"its entry is {found}, the batch is at byte {entry.position}, offset {entry.offset}"
                self._damaged(what.replace("IndexEntry", ""), self._position)
                return

    def finish(self) -> Reading[None]:
        """All batches were seen: nothing may be left."""
        if self._is_over:
            return
        if self._left or self._at < len(self._read):
            self._damaged("it has more entries than there are batches for", self._position)
            return
        after = yield Position(self._key, self._position, 1)
        if after is not None:
            self._damaged("it is longer than its header says", self._position)

    def _next(self) -> Reading[IndexEntry | None]:
        if self._at == len(self._read) and self._left and not self._is_over:
            count = min(self._left, INDEX_PIECE_BYTES // ENTRY_BYTES)
            data = yield Position(self._key, self._position, count * ENTRY_BYTES)
            if data is None:
                self._damaged(f"it is short of its {self._left} last entries", self._position)
                return None
            self._read, self._at = index_entries(data), 0
            self._position += count * ENTRY_BYTES
            self._left -= count
        if self._at == len(self._read):
            return None
        self._at += 1
        return self._read[self._at - 1]

    def _damaged(self, what: str, position: int) -> None:
        self._is_over = True
        self.report(
            Damage(DamageKind.DAMAGED_INDEX, what, PUT_INDEX_BACK, object=self._key, position=position)
        )


def _offset(marker: MergedMarker) -> int:
    return marker.offset


def _get(locator: str, start: int, size: int) -> Reading[memoryview]:
    data = yield Position(locator, start, size)
    if data is None:
        raise ObjectGone
    return memoryview(data)
