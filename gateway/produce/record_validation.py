"""Validation of the records of a batch, only for topics whose configs need it.

Keys are validated where `cleanup.policy` has compact, timestamps where a lower bound is set or the header
has one that is too late. Batches are compressed again where `compression.type` names another codec than the
producer's. As in Kafka, a batch that was validated is stored with the latest timestamp that its records
really have. Pure, and slow: a task for the batch opener, with a bound on decompressed bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.produce.refusals import MAX_SHOWN, Refusal
from ledger.batch.compression import compress
from ledger.batch.header import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchError,
    BatchHeader,
    CheckedBatch,
    Codec,
    seal,
)
from ledger.batch.reader import MAX_INT64, MIN_INT64, RecordReader, wrapped
from ledger.batch.records import Skimmed, encode_record, parse_records
from ledger.errors import ErrorName
from ledger.types import NO_TIMESTAMP

CHUNK_RECORDS: Final = 1_000
MAX_REBASED_RECORDS: Final = 10_000
MAX_REBASED_BYTES: Final = 256 * 1024
"""The largest batch that gets its first record's timestamp as base when it is compressed again, as in Kafka:
each record has to be encoded again for that, at once, and consumers see no difference."""
KEPT_ATTRIBUTES: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT
"""Of a batch that is compressed again, next to the codec."""


@dataclass(frozen=True, slots=True)
class RecordValidation:
    """What to validate of the records of a batch. None and False: not at all."""

    keys_required: bool = False
    earliest_ms: int | None = None
    """No record may be older (unix ms)."""
    latest_ms: int | None = None
    codec: Codec | None = None
    """The codec in which the topic stores its batches."""
    max_decompressed_bytes: int = 64 * 1024 * 1024
    max_batch_bytes: int = 2**31 - 1


def validate_records(batch: CheckedBatch, validation: RecordValidation) -> CheckedBatch | Refusal:
    """The batch to store, or why it is refused; all at once."""
    validator = RecordValidator(batch, validation)
    while not (validator.unpack() and validator.step(lambda: False)):
        pass
    return validator.outcome


class RecordValidator:
    """As `validate_records`, in steps. `outcome` is the result when it is done."""

    def __init__(self, batch: CheckedBatch, validation: RecordValidation) -> None:
        self._batch = batch
        self._validation = validation
        self._reader = RecordReader(batch.header, batch.data, validation.max_decompressed_bytes)
        self._index = 0
        self._error: ErrorName | None = None
        self._record_errors: list[tuple[int, str]] = []
        """Index and reason of the records that are refused, at most MAX_SHOWN."""
        self._first_delta = 0
        self._latest = NO_TIMESTAMP
        self.outcome: CheckedBatch | Refusal = batch

    @property
    def is_long(self) -> bool:
        return self._reader.is_long

    def release(self) -> None:
        self._reader.release()

    def unpack(self) -> bool:
        try:
            return self._reader.unpack()
        except BatchError as error:
            self.outcome = _refused(error)
            return True

    def step(self, is_over: Callable[[], bool]) -> bool:
        if isinstance(self.outcome, Refusal):
            return True
        try:
            while not (self._reader.is_at_end or len(self._record_errors) == MAX_SHOWN):
                self._validate(self._reader.read(CHUNK_RECORDS))
                if is_over():
                    return False
            self.outcome = self._result()
        except BatchError as error:
            self.outcome = _refused(error)
        return True

    def _validate(self, records: Sequence[Skimmed]) -> None:
        validation, base, index, latest = (
            self._validation,
            self._batch.header.base_timestamp,
            self._index,
            self._latest,
        )
        earliest = validation.earliest_ms if validation.earliest_ms is not None else MIN_INT64
        last = validation.latest_ms if validation.latest_ms is not None else MAX_INT64
        if not index and records:
            self._first_delta = records[0][1]
        for _, timestamp_delta, has_key, _ in records:
            timestamp = base + timestamp_delta
            if not MIN_INT64 <= timestamp <= MAX_INT64:
                timestamp = wrapped(timestamp)
            if timestamp > latest:
                latest = timestamp
            if validation.keys_required and not has_key:
                self._error = self._error or ErrorName.INVALID_RECORD
                self._record_errors.append((index, "a compacted topic takes only records with a key"))
            elif not (earliest <= timestamp <= last or timestamp == NO_TIMESTAMP):
                self._error = ErrorName.INVALID_TIMESTAMP
                self._record_errors.append(
                    (index, f"timestamp {timestamp} is outside the bounds of the topic")
                )
            if len(self._record_errors) == MAX_SHOWN:
                break
            index += 1
        self._index, self._latest = index, latest

    def _result(self) -> CheckedBatch | Refusal:
        if self._error is not None:
            return Refusal(
                self._error, "One or more records have been rejected", self._record_errors, in_log=True
            )
        header, data = self._batch
        validation = self._validation
        if not header.attributes & LOG_APPEND_TIME_BIT:
            header = header._replace(max_timestamp=self._latest)
        if validation.codec is None or validation.codec is header.codec:
            return self._batch if header == self._batch.header else _sealed(header, data[HEADER_BYTES:])
        header, records = self._rebased(header)
        recoded = recode(header, records, validation.codec)
        if len(recoded.data) > validation.max_batch_bytes:
            return Refusal(ErrorName.MESSAGE_TOO_LARGE, "the batch is too large in the codec of the topic")
        return recoded

    def _rebased(self, header: BatchHeader) -> tuple[BatchHeader, memoryview]:
        """The records with the first one's timestamp as base."""
        records, first = self._reader.records, self._first_delta
        base = header.base_timestamp + first
        is_large = header.record_count > MAX_REBASED_RECORDS or len(records) > MAX_REBASED_BYTES
        if not first or is_large or not MIN_INT64 <= base <= MAX_INT64:
            return header, records
        data = bytearray()
        for record in parse_records(records, header.record_count):
            delta = record.timestamp_delta - first
            if not MIN_INT64 <= delta <= MAX_INT64:
                return header, records
            data += encode_record(record._replace(timestamp_delta=delta))
        return header._replace(base_timestamp=base), memoryview(data)


def _refused(error: BatchError) -> Refusal:
    return Refusal(error.refusal, error.reason, in_log=True)


def recode(header: BatchHeader, records: memoryview, codec: Codec) -> CheckedBatch:
    """The same records in another codec. Offsets, timestamps and sequences stay; attribute bits without a
    meaning are cleared."""
    attributes = header.attributes & KEPT_ATTRIBUTES & ~CODEC_MASK | codec
    return _sealed(header._replace(attributes=attributes), compress(codec, records))


def _sealed(header: BatchHeader, payload: bytes | memoryview) -> CheckedBatch:
    packed = header._replace(batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload))
    data = bytearray(HEADER.pack(*packed))
    data += payload
    seal(data)
    return CheckedBatch(packed, memoryview(data).toreadonly())
