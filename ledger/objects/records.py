"""Metadata records of stored objects, and their bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.records import LEVEL_WITH_ORIGINS, RecordFormat

_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class ObjectsForgotten:
    """Bytes of these dead objects are gone from the store."""

    objects: Sequence[int]


@dataclass(frozen=True, slots=True)
class FloorRaised:
    """No object created before `floor_ms` may be committed any more."""

    floor_ms: int


def _encode_forgotten(record: ObjectsForgotten) -> bytes:
    return b"".join(_U32.pack(number) for number in record.objects)


def _decode_forgotten(body: memoryview) -> ObjectsForgotten:
    return ObjectsForgotten([number for (number,) in _U32.iter_unpack(body)])


def _encode_floor(record: FloorRaised) -> bytes:
    return _I64.pack(record.floor_ms)


def _decode_floor(body: memoryview) -> FloorRaised:
    return FloorRaised(*_I64.unpack(body))


def _encode_forgotten_wide(record: ObjectsForgotten) -> bytes:
    return b"".join(_U64.pack(number) for number in record.objects)


def _decode_forgotten_wide(body: memoryview) -> ObjectsForgotten:
    return ObjectsForgotten([number for (number,) in _U64.iter_unpack(body)])


OBJECTS_FORGOTTEN = RecordFormat(
    10,
    ObjectsForgotten,
    _encode_forgotten_wide,
    _decode_forgotten_wide,
    version=1,
    level=LEVEL_WITH_ORIGINS,
    older=RecordFormat(10, ObjectsForgotten, _encode_forgotten, _decode_forgotten),
)
FLOOR_RAISED = RecordFormat(11, FloorRaised, _encode_floor, _decode_floor)
