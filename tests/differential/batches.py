"""Batches as exchanges declare them: right by default, wrong where the exchange says so."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.batch.header import (
    ATTRIBUTES_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    Codec,
    seal,
)
from ledger.batch.records import Producer, Record, RecordHeader, build_batch
from tests.differential.exchange import Names, ProducerIdOf

HOUR_MS = 3_600_000
RECORD_COUNT_AT = 57
FIRST_RECORD_AT = 61


@dataclass(frozen=True, slots=True)
class Patch:
    """Other bytes in a batch; `sealed` ones are put in before the CRC is computed."""

    position: int
    data: bytes
    sealed: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch. Timestamps begin an hour before the run, or `later_ms` after that."""

    count: int = 1
    value: bytes = b"value"
    codec: Codec = Codec.NONE
    producer: ProducerIdOf | int = -1
    epoch: int = -1
    sequence: int = -1
    flags: int = 0
    base_offset: int = 0
    later_ms: int = 0
    step_ms: int = 1
    timestamp_ms: int | None = None
    patches: Sequence[Patch] = ()
    cut: int = 0
    """Bytes missing at the end, the header unchanged."""
    records: Sequence[Record] | None = None

    def build(self, names: Names) -> bytes:
        producer = self.producer
        producer_id = producer if isinstance(producer, int) else names.producer_id(producer.producer)
        base_timestamp = names.now_ms() - HOUR_MS + self.later_ms
        batch = bytearray(
            build_batch(
                self._records() if self.records is None else self.records,
                self.codec,
                base_offset=self.base_offset,
                base_timestamp=base_timestamp if self.timestamp_ms is None else self.timestamp_ms,
                producer=Producer(producer_id, self.epoch, self.sequence),
                flags=self.flags,
            )
        )
        _apply(batch, [patch for patch in self.patches if patch.sealed])
        seal(batch)
        _apply(batch, [patch for patch in self.patches if not patch.sealed])
        return bytes(batch[: len(batch) - self.cut])

    def _records(self) -> list[Record]:
        headers = (RecordHeader("h", b"1"), RecordHeader("none", None))
        return [
            Record(i, i * self.step_ms, b"k%d" % i, self.value, headers if i % 2 else ())
            for i in range(self.count)
        ]


@dataclass(frozen=True, slots=True)
class Batches:
    """Several things in one partition's records: batches, or bytes as they are."""

    parts: Sequence[Batch | bytes]

    def build(self, names: Names) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part.build(names) for part in self.parts)


def i16(value: int) -> bytes:
    return struct.pack(">h", value)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def length_field(value: int) -> Patch:
    return Patch(LENGTH_AT, i32(value), sealed=False)


def leader_epoch(value: int) -> Patch:
    return Patch(LEADER_EPOCH_AT, i32(value), sealed=False)


def magic(value: int) -> Patch:
    return Patch(MAGIC_AT, bytes([value]), sealed=False)


def crc(data: bytes) -> Patch:
    return Patch(CRC_AT, data, sealed=False)


def attributes(value: int) -> Patch:
    return Patch(ATTRIBUTES_AT, i16(value))


def last_offset_delta(value: int) -> Patch:
    return Patch(LAST_OFFSET_DELTA_AT, i32(value))


def record_count(value: int) -> Patch:
    return Patch(RECORD_COUNT_AT, i32(value))


def max_timestamp(value: int) -> Patch:
    return Patch(MAX_TIMESTAMP_AT, i64(value))


def _apply(batch: bytearray, patches: Sequence[Patch]) -> None:
    for patch in patches:
        batch[patch.position : patch.position + len(patch.data)] = patch.data
