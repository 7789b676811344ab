"""Which record of a batch is the first with a timestamp. Pure, and slow: a task for the batch opener."""

from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.fetch.stream import StoredBatch
from ledger.batch.header import LOG_APPEND_TIME_BIT, read_header
from ledger.batch.reader import MAX_INT64, MIN_INT64, RecordReader, wrapped
from ledger.types import NO_TIMESTAMP

CHUNK_RECORDS: Final = 1_000


class TimedOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeSearch:
    """Looks for the first record from `from_offset` on whose timestamp is `timestamp` or later.

    With LogAppendTime every record has the batch's timestamp; else the records must be parsed. Its steps
    raise BatchError for records that cannot be read.
    """

    def __init__(
        self, batch: StoredBatch, timestamp: int, from_offset: int, max_decompressed_bytes: int
    ) -> None:
        self._batch = batch
        self._timestamp = timestamp
        self._from_offset = from_offset
        header = read_header(batch.data)
        self._base_timestamp = header.base_timestamp
        self._reader = RecordReader(header, batch.data, max_decompressed_bytes)
        self.found: TimedOffset | None = None
        self.latest = NO_TIMESTAMP
        """The latest timestamp of the records that were read."""

    @property
    def is_long(self) -> bool:
        return self._reader.is_long

    def release(self) -> None:
        self._reader.release()

    def unpack(self) -> bool:
        return self._needs_no_records() or self._reader.unpack()

    def step(self, is_over: Callable[[], bool]) -> bool:
        batch, timestamp, from_offset = self._batch, self._timestamp, self._from_offset
        if self._needs_no_records():
            if batch.max_timestamp >= timestamp:
                self.found = TimedOffset(batch.max_timestamp, max(batch.base_offset, from_offset))
            return True
        reader, base_timestamp = self._reader, self._base_timestamp
        while not reader.is_at_end:
            for offset_delta, timestamp_delta, _, _ in reader.read(CHUNK_RECORDS):
                offset = batch.base_offset + offset_delta
                if offset < from_offset:
                    continue
                stamp = base_timestamp + timestamp_delta
                if not MIN_INT64 <= stamp <= MAX_INT64:
                    stamp = wrapped(stamp)
                if stamp >= timestamp:
                    self.found = TimedOffset(stamp, offset)
                    return True
                self.latest = max(self.latest, stamp)
            if is_over():
                return reader.is_at_end
        return True

    def _needs_no_records(self) -> bool:
        """The header is enough."""
        return bool(self._batch.attributes & LOG_APPEND_TIME_BIT)
