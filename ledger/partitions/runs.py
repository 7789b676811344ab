"""Runs, packed into chunks: 40 bytes a run, so that a million of them fit in memory.

A commit touches the ends of thousands of chunks at a time, each in another place of memory: so a run is one
row in one buffer. The image keeps chunks as columns, which are cut out of the rows by strides.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ledger.errors import StoreDamaged
from ledger.types import NO_TIMESTAMP

Row: TypeAlias = tuple[int, int, int, int, int, int]
"""(last offset, base offset, max timestamp, object number, start, size)."""

_ROW = struct.Struct("<qqqQII")
_LAST = struct.Struct("<q")
_BASE = struct.Struct("<qq")
_ROW_BYTES = _ROW.size
_WORDS = _ROW_BYTES // 4
_STAMP_WORD, _OBJECT_WORD, _SIZE_WORD = 4, 6, 9
# The columns of an image: the first word in a row, and how many words.
_COLUMNS = ((2, 2), (0, 2), (6, 2), (8, 1), (9, 1), (4, 2))
# Of feature level 1: object numbers of 32 bits. Words are little-endian, so the lower one comes first.
_NARROW_COLUMNS = ((2, 2), (0, 2), (6, 1), (8, 1), (9, 1), (4, 2))
SAME_AGE_MS = 3_600_000
_FIRST_WINDOW, _LAST_WINDOW = 8, 512
SEGMENT_RUN: Final = 1 << 63
"""Added to the object number in the row of a run that is not dense: object numbers have 48 bits."""
MARKER_RUN: Final = SEGMENT_RUN + (1 << 62)
"""What a marker, which is in no object, has at least instead (`ledger/partitions/markers.py`)."""


def without_timestamp(committed_ms: int) -> int:
    """The greatest timestamp of a run whose records have none. Any number below zero says that; this one also
    says when the run was committed, which NO_TIMESTAMP, in older journals, does not."""
    return NO_TIMESTAMP - 1 - committed_ms


def committed_ms(max_timestamp: int) -> int | None:
    """When a run without timestamps was committed; None for one with timestamps, and where it is unknown."""
    return NO_TIMESTAMP - 1 - max_timestamp if max_timestamp < NO_TIMESTAMP else None


def later_timestamp(one: int, other: int) -> int:
    """Of a run that is joined from two."""
    return max(one, other) if max(one, other) >= 0 else min(one, other)


def are_of_one_age(one: int, other: int) -> bool:
    """Whether retention may see these two as one run. With timestamps it is as old as those say: so records
    that have none, and are as old as their commit, may not be joined with others that are much older."""
    timed, untimed = max(one, other), min(one, other)
    committed = committed_ms(untimed)
    return timed < 0 or committed is None or timed >= committed - SAME_AGE_MS


class Run(NamedTuple):
    """Offsets [base, last] are bytes [start, start + size) of an object.

    `dense`: batches carry the producer's base offset, and true offsets come from counting
    lastOffsetDelta + 1 from `base`; otherwise (a segment) batches carry their own. A `max_timestamp` below
    zero: no record has one (`committed_ms`).
    """

    base: int
    last: int
    object_number: int
    start: int
    size: int
    max_timestamp: int
    dense: bool = True


def run_of(row: Row) -> Run:
    last, base, stamp, number, start, size = row
    if number < SEGMENT_RUN:
        return Run(base, last, number, start, size, stamp)
    return Run(base, last, number - SEGMENT_RUN, start, size, stamp, dense=False)


def pack_row(run: Run) -> bytes:
    number = run.object_number if run.dense else run.object_number + SEGMENT_RUN
    return _ROW.pack(run.last, run.base, run.max_timestamp, number, run.start, run.size)


def cut_rows(rows: bytes, runs: int) -> Iterator[bytes]:
    """Packed rows in parts of so many runs; the last part may have fewer."""
    step = runs * _ROW_BYTES
    return (rows[at : at + step] for at in range(0, len(rows), step))


class RunChunk:
    """Some runs of one partition, in offset order. `head` is the first that still lives.

    `trimmed` counts runs that had gone before the chunk was read from an image: they fill it all the same,
    so that a restarted gateway cuts chunks where the one before it did.
    """

    __slots__ = ("_rows", "filled", "head", "latest", "serial", "total_bytes", "trimmed")

    def __init__(self, serial: int, trimmed: int = 0) -> None:
        self.serial = serial
        self.head = 0
        self.trimmed = trimmed
        self.filled = trimmed
        """Runs, with all that have gone."""
        self.latest = NO_TIMESTAMP
        """The greatest timestamp of all its runs, with those before the head, so that a search may pass the
        chunk by; NO_TIMESTAMP if none has one."""
        self.total_bytes = 0
        """Of all its runs, with those before the head, when they were last counted: what it has once no
        further run comes."""
        self._rows = bytearray()

    @classmethod
    def of_rows(cls, serial: int, rows: bytes) -> "RunChunk":
        """Of packed rows."""
        chunk = cls(serial)
        chunk._rows = bytearray(rows)
        chunk.filled = len(chunk)
        chunk._find_latest()
        chunk.count_bytes()
        return chunk

    def __len__(self) -> int:
        """Runs, with those before the head."""
        return len(self._rows) // _ROW_BYTES

    @property
    def last(self) -> int:
        """The last offset of the last run."""
        return int(_LAST.unpack_from(self._rows, len(self._rows) - _ROW_BYTES)[0])

    def append(
        self, object_number: int, start: int, size: int, base: int, last: int, max_timestamp: int
    ) -> None:
        self._rows += _ROW.pack(last, base, max_timestamp, object_number, start, size)
        self.filled += 1
        if max_timestamp > self.latest:
            self.latest = max_timestamp

    def trim(self) -> None:
        """No further run comes: a tenth of its memory was for more of them."""
        self._rows = bytearray(self._rows)
        self.count_bytes()

    def count_bytes(self) -> int:
        """What `total_bytes` is from now on."""
        self.total_bytes = sum(self.sizes(0, len(self)))
        return self.total_bytes

    def lengthen(self, last: int, size: int, max_timestamp: int) -> None:
        """The last run goes on for `size` bytes up to the offset `last`."""
        at = len(self._rows) - _ROW_BYTES
        _, base, stamp, object_number, start, held = _ROW.unpack_from(self._rows, at)
        stamp = later_timestamp(stamp, max_timestamp)
        _ROW.pack_into(self._rows, at, last, base, stamp, object_number, start, held + size)
        self.latest = max(self.latest, stamp)

    def row(self, i: int) -> Row:
        return _ROW.unpack_from(self._rows, i * _ROW_BYTES)

    def rows(self, first: int) -> Iterator[Row]:
        """Rows from `first` on, each as it is when the iteration reaches it."""
        window = _FIRST_WINDOW
        while first < len(self):
            # A copy: while a view of the buffer exists, it cannot grow.
            some = self._rows[first * _ROW_BYTES : (first + window) * _ROW_BYTES]
            yield from _ROW.iter_unpack(some)
            # It may have grown since; then there were fewer than the window holds.
            first, window = first + len(some) // _ROW_BYTES, min(2 * window, _LAST_WINDOW)

    def find(self, offset: int) -> int:
        """The first live run that ends at or after `offset`; the number of runs if there is none."""
        low, high = self.head, len(self)
        unpack, rows = _LAST.unpack_from, self._rows
        while low < high:
            middle = (low + high) // 2
            if unpack(rows, middle * _ROW_BYTES)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def find_latest(self, first: int) -> tuple[int, int]:
        """The first row with the greatest timestamp, of those from `first` on, and that timestamp. There is
        at least one row."""
        stamps = self._column(first, len(self), _STAMP_WORD, 2, "q")
        latest = max(stamps)
        return first + stamps.index(latest), latest

    def has_last_from(self, offset: int) -> bool:
        """Whether the last run is live and holds everything from `offset` on."""
        at = len(self._rows) - _ROW_BYTES
        return self.head * _ROW_BYTES <= at and _BASE.unpack_from(self._rows, at)[1] <= offset

    def packed(self, first: int, end: int) -> bytes:
        """These rows as bytes, for `of_rows`."""
        return bytes(self._rows[first * _ROW_BYTES : end * _ROW_BYTES])

    def object_numbers(self, first: int, end: int) -> Sequence[int]:
        """One for each of these runs that is in an object."""
        numbers = self._column(first, end, _OBJECT_WORD, 2, "Q")
        if max(numbers, default=0) < SEGMENT_RUN:
            return numbers
        return [number % SEGMENT_RUN for number in numbers if number < MARKER_RUN]

    def has_markers(self, first: int, end: int) -> bool:
        """Whether one of these runs is a marker."""
        return max(self._column(first, end, _OBJECT_WORD, 2, "Q"), default=0) >= MARKER_RUN

    def sizes(self, first: int, end: int) -> Sequence[int]:
        return self._column(first, end, _SIZE_WORD, 1, "I")

    def copy(self) -> "RunsCopy":
        """The live runs as they are now, at little cost: to be encoded later."""
        return RunsCopy(self, self.head, len(self), self._rows[-_ROW_BYTES:])

    def fill(self, columns: memoryview, count: int, is_narrow: bool = False) -> None:
        """Read `count` runs from such columns. StoreDamaged if they are not that long."""
        layout = _layout(is_narrow)
        if len(columns) != count * 4 * sum(words for _, words in layout):
            raise StoreDamaged("a chunk of runs in an image does not have the length it claims")
        self._rows = bytearray(count * _ROW_BYTES)
        self.filled = self.trimmed + count
        with memoryview(self._rows).cast("I") as rows:
            columns = columns.cast("I")
            for word, words in layout:
                for i in range(words):
                    rows[word + i :: _WORDS] = columns[i : count * words : words]
                columns = columns[count * words :]
        self._find_latest()

    def _find_latest(self) -> None:
        stamps = self._column(0, len(self), _STAMP_WORD, 2, "q")
        self.latest = max(max(stamps, default=NO_TIMESTAMP), NO_TIMESTAMP)

    def _column(self, first: int, end: int, word: int, words: int, typecode: str) -> Sequence[int]:
        column = array(typecode, _cut(self._rows[first * _ROW_BYTES : end * _ROW_BYTES], word, words))
        if sys.byteorder == "big":
            column.byteswap()
        return column


class RunsCopy(NamedTuple):
    """Runs [head, end) of a chunk as they were: after the copy the chunk only grows at its end, and only the
    run that was the last changes. A swap makes other chunks."""

    chunk: RunChunk
    head: int
    end: int
    last_row: bytearray

    def columns(self, is_narrow: bool = False) -> list[bytes]:
        """base, last, object number, start, size, max timestamp: little-endian int64, uint64 and uint32
        arrays. `is_narrow`: as feature level 1 has them, with object numbers of 32 bits."""
        rows = self.chunk._rows[self.head * _ROW_BYTES : self.end * _ROW_BYTES]  # noqa: SLF001 - a copy of its own chunk
        rows[-_ROW_BYTES:] = self.last_row
        return [_cut(rows, word, words) for word, words in _layout(is_narrow)]


def _layout(is_narrow: bool) -> Sequence[tuple[int, int]]:
    return _NARROW_COLUMNS if is_narrow else _COLUMNS


def _cut(rows: bytearray, word: int, words: int) -> bytes:
    """One column out of rows."""
    source = memoryview(rows).cast("I")
    if words == 1:
        return source[word::_WORDS].tobytes()
    column = bytearray(len(rows) // _WORDS * words)
    target = memoryview(column).cast("I")
    for i in range(words):
        target[i::words] = source[word + i :: _WORDS]
    return bytes(column)
