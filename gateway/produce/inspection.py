"""Batches that have to be opened: only topics whose configs ask for it pay for this.

Keys are looked at where `cleanup.policy` has compact, timestamps where a lower bound is set or the header
names one that is too late, and batches are packed anew where `compression.type` names another codec than the
producer's. What was opened is stored with the greatest timestamp that its records really have, as in Kafka.
Pure, and slow: a work of the batch opener, with unpacked bytes bounded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.produce.refusals import MOST_TOLD, Refusal
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
from ledger.types import NO_TIMESTAMP

CHUNK_RECORDS: Final = 1_000
MAX_REBASED_RECORDS: Final = 10_000
"""A batch packed anew gets its first record's timestamp as base, as Kafka gives it, if it has at most so many
records: each has to be written anew for that, and readers see no difference."""
KEPT_ATTRIBUTES: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT
"""Of a batch that is packed anew, beside the codec."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What to look for inside a batch. None and False: not at all."""

    keys_required: bool = False
    earliest_ms: int | None = None
    """No record may be older (unix ms)."""
    latest_ms: int | None = None
    codec: Codec | None = None
    """The codec that the topic keeps its batches in."""
    max_decompressed_bytes: int = 64 * 1024 * 1024
    max_batch_bytes: int = 2**31 - 1


def inspect(batch: CheckedBatch, wanted: Inspection) -> CheckedBatch | Refusal:
    """The batch to store, or why it is refused; all at once."""
    inspecting = Inspecting(batch, wanted)
    while not (inspecting.unpack() and inspecting.step(lambda: False)):
        pass
    return inspecting.outcome


class Inspecting:
    """The same as a work. `outcome` when it is done."""

    def __init__(self, batch: CheckedBatch, wanted: Inspection) -> None:
        self._batch = batch
        self._wanted = wanted
        self._reader = RecordReader(batch.header, batch.data, wanted.max_decompressed_bytes)
        self._index = 0
        self._error = ""
        self._told: list[tuple[int, str]] = []
        """Every record that is wrong, up to MOST_TOLD."""
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
            while not (self._reader.is_at_end or len(self._told) == MOST_TOLD):
                self._look_at(self._reader.read(CHUNK_RECORDS))
                if is_over():
                    return False
            self.outcome = self._concluded()
        except BatchError as error:
            self.outcome = _refused(error)
        return True

    def _look_at(self, records: Sequence[Skimmed]) -> None:
        wanted, base, index, latest = (
            self._wanted,
            self._batch.header.base_timestamp,
            self._index,
            self._latest,
        )
        earliest = wanted.earliest_ms if wanted.earliest_ms is not None else MIN_INT64
        last = wanted.latest_ms if wanted.latest_ms is not None else MAX_INT64
        if not index and records:
            self._first_delta = records[0][1]
        for _, timestamp_delta, has_key, _ in records:
            timestamp = base + timestamp_delta
            if not MIN_INT64 <= timestamp <= MAX_INT64:
                timestamp = wrapped(timestamp)
            if timestamp > latest:
                latest = timestamp
            if wanted.keys_required and not has_key:
                self._error = self._error or "INVALID_RECORD"
                self._told.append((index, "a compacted topic takes only records with a key"))
            elif not (earliest <= timestamp <= last or timestamp == NO_TIMESTAMP):
                self._error = "INVALID_TIMESTAMP"
                self._told.append((index, f"timestamp {timestamp} is outside the bounds of the topic"))
            if len(self._told) == MOST_TOLD:
                break
            index += 1
        self._index, self._latest = index, latest

    def _concluded(self) -> CheckedBatch | Refusal:
        if self._error:
            return Refusal(self._error, "One or more records have been rejected", self._told, in_log=True)
        header, data = self._batch
        wanted = self._wanted
        if not header.attributes & LOG_APPEND_TIME_BIT:
            header = header._replace(max_timestamp=self._latest)
        if wanted.codec is None or wanted.codec is header.codec:
            return self._batch if header == self._batch.header else _sealed(header, data[HEADER_BYTES:])
        header, records = self._rebased(header)
        recoded = recode(header, records, wanted.codec)
        if len(recoded.data) > wanted.max_batch_bytes:
            return Refusal("MESSAGE_TOO_LARGE", "the batch is too large in the codec of the topic")
        return recoded

    def _rebased(self, header: BatchHeader) -> tuple[BatchHeader, memoryview]:
        """The records with the first one's timestamp as base."""
        records, first = self._reader.records, self._first_delta
        base = header.base_timestamp + first
        if not first or header.record_count > MAX_REBASED_RECORDS or not MIN_INT64 <= base <= MAX_INT64:
            return header, records
        data = bytearray()
        for record in parse_records(records, header.record_count):
            delta = record.timestamp_delta - first
            if not MIN_INT64 <= delta <= MAX_INT64:
                return header, records
            data += encode_record(record._replace(timestamp_delta=delta))
        return header._replace(base_timestamp=base), memoryview(data)


def _refused(error: BatchError) -> Refusal:
    return Refusal(error.refusal.value, error.reason, in_log=True)


def recode(header: BatchHeader, records: memoryview, codec: Codec) -> CheckedBatch:
    """The same records under another codec; offsets, timestamps and sequences stay, attributes that nothing
    uses do not."""
    attributes = header.attributes & KEPT_ATTRIBUTES & ~CODEC_MASK | codec
    return _sealed(header._replace(attributes=attributes), compress(codec, records))


def _sealed(header: BatchHeader, payload: bytes | memoryview) -> CheckedBatch:
    packed = header._replace(batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload))
    data = bytearray(HEADER.pack(*packed))
    data += payload
    seal(data)
    return CheckedBatch(packed, memoryview(data).toreadonly())
