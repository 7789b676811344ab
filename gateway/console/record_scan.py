"""Opening the records of one batch for the console: a task for worker threads. Pure, and slow."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from ledger.batch.header import LOG_APPEND_TIME_BIT, BatchError, BatchHeader, read_header
from ledger.batch.reader import MAX_INT64, MIN_INT64, RecordReader, wrapped
from ledger.batch.records import HEADERS_AT_ONCE, Record, parse_records
from ledger.types import Buffer

STEP_RECORDS: Final = 250
MAX_HEADERS: Final = 50
MAX_NAME_CHARS: Final = 250
"""Headers of a record, and characters of their names, that are shown."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """What a record must have; None: anything. Texts match a part of the bytes; `header` is a name, and with
    `header_value` a part of its value."""

    key: bytes | None = None
    value: bytes | None = None
    header: str | None = None
    header_value: bytes | None = None

    def matches(self, record: Record) -> bool:
        return (
            _contains(record.key, self.key)
            and _contains(record.value, self.value)
            and (self.header is None or self._matches_header(record))
        )

    def _matches_header(self, record: Record) -> bool:
        return any(
            header.key == self.header and _contains(header.value, self.header_value)
            for header in record.headers
        )


class Cut(NamedTuple):
    """The first bytes of something, and how many there are of it."""

    data: bytes
    size: int


class FoundRecord(NamedTuple):
    """`timestamp_ms` -1: it has none. Of a header, a name and its value."""

    offset: int
    timestamp_ms: int
    key: Cut | None
    value: Cut | None
    headers: tuple[tuple[str, Cut | None], ...]
    batch: BatchHeader


class ScanBounds(NamedTuple):
    """Records from offset `first` on and below `end`; `limit` of them, with `keep_bytes` of each key and
    value, and a sixteenth of that of each header. `max_bytes`: of the batch, decompressed."""

    first: int
    end: int
    limit: int
    keep_bytes: int
    max_bytes: int


class RecordScan:
    """The records of a batch within the bounds, as far as they match. `data` is the batch with its true
    offsets. `next_offset` says where to go on."""

    def __init__(self, data: memoryview, bounds: ScanBounds, wanted: RecordFilter) -> None:
        self.header = read_header(data)
        self._bounds = bounds
        self._wanted = wanted
        self._reader = RecordReader(self.header, data, bounds.max_bytes)
        self._records: Iterator[Record] | None = None
        self.scanned = 0
        self.found: list[FoundRecord] = []
        self.next_offset = self.header.last_offset + 1
        self.unreadable = ""
        """Why the records cannot be read: the batch is as its producer sent it."""

    @property
    def is_long(self) -> bool:
        return self._reader.is_long

    def unpack(self) -> bool:
        try:
            return self._reader.unpack()
        except BatchError as error:
            self.unreadable = str(error)
            return True

    def release(self) -> None:
        self._records = None
        self._reader.release()

    def step(self, is_over: Callable[[], bool]) -> bool:
        if self.unreadable:
            return True
        if self._records is None:
            records = parse_records(self._reader.records, self.header.record_count)
            self._records = islice(records, self.scanned, None)
        try:
            while not is_over():
                part = _some(self._records)
                if not part:
                    return True
                if self._take(part):
                    return True
        except BatchError as error:
            self.unreadable = str(error)
            return True
        return False

    def _take(self, records: list[Record]) -> bool:
        """Whether that is enough."""
        first, end, limit, keep_bytes, _ = self._bounds
        for record in records:
            offset = self.header.base_offset + record.offset_delta
            if offset >= end or len(self.found) == limit:
                self.next_offset = min(offset, end)
                return True
            self.scanned += 1
            if offset >= first and self._wanted.matches(record):
                self.found.append(_found(self.header, record, offset, keep_bytes))
        return False


def _some(records: Iterator[Record]) -> list[Record]:
    """The next few, fewer if they have many headers."""
    part: list[Record] = []
    headers = 0
    for record in islice(records, STEP_RECORDS):
        part.append(record)
        headers += len(record.headers)
        if headers >= HEADERS_AT_ONCE:
            break
    return part


def _found(header: BatchHeader, record: Record, offset: int, keep_bytes: int) -> FoundRecord:
    # Views would keep the whole batch in memory.
    return FoundRecord(
        offset,
        _timestamp(header, record),
        _cut(record.key, keep_bytes),
        _cut(record.value, keep_bytes),
        tuple((_name(one.key), _cut(one.value, keep_bytes // 16)) for one in record.headers[:MAX_HEADERS]),
        header,
    )


def _timestamp(header: BatchHeader, record: Record) -> int:
    if header.attributes & LOG_APPEND_TIME_BIT:
        return header.max_timestamp
    stamp = header.base_timestamp + record.timestamp_delta
    return stamp if MIN_INT64 <= stamp <= MAX_INT64 else wrapped(stamp)


def _name(key: str) -> str:
    """Of a header, without the surrogates that stand for bytes that are no UTF-8."""
    return key[:MAX_NAME_CHARS].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _cut(buffer: Buffer | None, keep_bytes: int) -> Cut | None:
    return None if buffer is None else Cut(bytes(buffer[:keep_bytes]), len(buffer))


def _contains(buffer: Buffer | None, part: bytes | None) -> bool:
    if part is None:
        return True
    return buffer is not None and part in bytes(buffer)
