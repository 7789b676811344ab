"""The metadata record of batches that were moved out of journal entries, and its bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ledger.errors import StoreDamaged
from ledger.inline.requests import MOVE_BYTES, MOVED_RUN_BYTES, MovedRun
from ledger.records import LEVEL_WITH_PLACED, RecordFormat

_HEAD = struct.Struct(">HqI")
"""Bytes of the locator, bytes of the object, ranges."""
_RANGE = struct.Struct(">IqqII")
"""Partition number, first and last offset, runs replaced, runs."""
_RUN = struct.Struct(">IIqqq")
assert _RANGE.size == MOVE_BYTES and _RUN.size == MOVED_RUN_BYTES


class MovedRange(NamedTuple):
    """As `RangeMove`, with the number of the partition."""

    number: int
    first: int
    last: int
    replaced: int
    runs: Sequence[MovedRun]


@dataclass(frozen=True, slots=True)
class InlineMoved:
    """Runs of this WAL object take the place of runs that are inside of entries."""

    locator: str
    object_bytes: int
    ranges: Sequence[MovedRange]


def _encode(record: InlineMoved) -> bytes:
    locator = record.locator.encode()
    parts = [_HEAD.pack(len(locator), record.object_bytes, len(record.ranges)), locator]
    for number, first, last, replaced, runs in record.ranges:
        parts.append(_RANGE.pack(number, first, last, replaced, len(runs)))
        parts += [_RUN.pack(*run) for run in runs]
    return b"".join(parts)


def _decode(body: memoryview) -> InlineMoved:
    locator_bytes, object_bytes, count = _HEAD.unpack_from(body)
    pos = _HEAD.size + locator_bytes
    locator = str(body[_HEAD.size : pos], "utf-8")
    ranges: list[MovedRange] = []
    for _ in range(count):
        number, first, last, replaced, runs = _RANGE.unpack_from(body, pos)
        pos += _RANGE.size
        end = pos + runs * _RUN.size
        if end > len(body):
            break
        moved = [MovedRun(*fields) for fields in _RUN.iter_unpack(body[pos:end])]
        ranges.append(MovedRange(number, first, last, replaced, moved))
        pos = end
    if pos != len(body) or len(ranges) != count:
        raise StoreDamaged("an InlineMoved record does not have the length it claims")
    return InlineMoved(locator, object_bytes, ranges)


INLINE_MOVED = RecordFormat(62, InlineMoved, _encode, _decode, level=LEVEL_WITH_PLACED)
