"""The records of one batch, a part at a time: for callers that open batches in slices."""

from collections.abc import Sequence
from typing import Final

from ledger.batch.compression import decompress
from ledger.batch.header import HEADER_BYTES, BatchError, BatchHeader, Codec
from ledger.batch.records import Skimmed, skim_records
from ledger.errors import ErrorName

SHORT_BYTES: Final = 4 * 1024 * 1024
"""A batch that has more when unpacked is long. One that is not packed never is: it takes no memory."""


MIN_INT64: Final = -(2**63)
MAX_INT64: Final = 2**63 - 1


class RecordReader:
    """Reads on from where it was, also after what was unpacked had been released."""

    def __init__(self, header: BatchHeader, data: memoryview, max_bytes: int) -> None:
        self._header = header
        self._data = data
        self._max_bytes = max_bytes
        self._records: memoryview | None = None
        self._position = 0
        self._left = header.record_count
        self.is_long = False

    @property
    def is_at_end(self) -> bool:
        """Every record was read."""
        return not self._left

    def unpack(self) -> bool:
        """Make sure that the records are here. False where this just shows the batch to be long, for which
        this is not the place. Raises BatchError."""
        if self._records is not None:
            return True
        header, packed = self._header, self._data[HEADER_BYTES:]
        if self.is_long or self._max_bytes <= SHORT_BYTES or header.codec is Codec.NONE:
            self._records = decompress(header.codec, packed, self._max_bytes)
            return True
        try:
            self._records = decompress(header.codec, packed, SHORT_BYTES)
        except BatchError as error:
            if error.refusal is not ErrorName.MESSAGE_TOO_LARGE:
                raise
            self.is_long = True
        return self._records is not None

    def release(self) -> None:
        self._records = None

    @property
    def records(self) -> memoryview:
        """All of them, as they were unpacked."""
        assert self._records is not None
        return self._records

    def read(self, count: int) -> Sequence[Skimmed]:
        """At most that many of the next records; with the last of them it is certain that nothing follows.
        Raises BatchError (INVALID_RECORD)."""
        found, self._position = skim_records(self.records, self._position, min(count, self._left))
        self._left -= len(found)
        if not self._left and self._position != len(self.records):
            left = len(self.records) - self._position
            reason = f"{left} bytes after the last of {self._header.record_count} records"
            raise BatchError(ErrorName.INVALID_RECORD, reason)
        return found


def wrapped(timestamp: int) -> int:
    """As Java adds a base timestamp and a delta: what an int64 cannot hold begins again at the other end."""
    return (timestamp - MIN_INT64) % 2**64 + MIN_INT64
