"""Control batches: the commit and abort markers that end a transaction in a partition.

One record; its key is `i16 version | i16 type`, its value `i16 version | i32 coordinator epoch`. What
a later version appends is ignored (KIP-98).
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ledger.batch.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchError
from ledger.batch.records import Producer, Record, build_batch, read_batch
from ledger.errors import ErrorName

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION: Final = 0
_MAX_MARKER_BYTES: Final = 4096


class MarkerType(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction in one partition."""

    type: MarkerType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    timestamp_ms: int


def build_marker(marker: Marker, base_offset: int = 0) -> bytes:
    """The control batch of a marker."""
    record = Record(
        key=_KEY.pack(_VERSION, marker.type), value=_VALUE.pack(_VERSION, marker.coordinator_epoch)
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        base_timestamp=marker.timestamp_ms,
        producer=Producer(marker.producer_id, marker.producer_epoch),
        flags=CONTROL_BIT | TRANSACTIONAL_BIT,
    )


def read_marker(batch: memoryview) -> Marker:
    """Raises BatchError (INVALID_RECORD) for a batch that is no marker of a transaction."""
    header, records = read_batch(batch, _MAX_MARKER_BYTES)
    if not header.is_control or len(records) != 1:
        raise _no_marker(f"control bit {header.is_control}, {len(records)} records")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        raise _no_marker("its key or value is too short")
    version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0 or value_version < 0 or kind not in (MarkerType.ABORT, MarkerType.COMMIT):
        raise _no_marker(f"version {version}, type {kind}, value version {value_version}")
    return Marker(
        MarkerType(kind), header.producer_id, header.producer_epoch, coordinator_epoch, header.max_timestamp
    )


def _no_marker(reason: str) -> BatchError:
    return BatchError(ErrorName.INVALID_RECORD, f"no transaction marker: {reason}")
