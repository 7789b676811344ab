"""Metadata records of swaps and pins, and their bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.errors import StoreDamaged
from ledger.records import LEVEL_WITH_SEGMENTS, RecordFormat
from ledger.swaps.requests import JOB_BYTES, RUN_BYTES, SegmentFile, SegmentRun

_SWAPPED = struct.Struct(">I16siqqqIII")
"""Partition number, job, attempt, first and last offset, layout version, runs replaced, segments, runs."""
_SEGMENT = struct.Struct(">qH")
_RUN = struct.Struct(">IIIqqq")
assert _RUN.size == RUN_BYTES


@dataclass(frozen=True, slots=True)
class SegmentsSwapped:
    """Segments take the place of the `replaced` live runs from the offset `first` to `last`.

    `runs` without those that are wholly below the log start; `layout_version` from now on.
    """

    number: int
    job: bytes
    attempt: int
    first: int
    last: int
    layout_version: int
    replaced: int
    segments: Sequence[SegmentFile]
    runs: Sequence[SegmentRun]


@dataclass(frozen=True, slots=True)
class PinTaken:
    """From this entry on a job has a pin."""

    job: bytes


@dataclass(frozen=True, slots=True)
class PinReleased:
    """The pin of this job has ended, and with it what was kept for repeats of its swaps."""

    job: bytes


def _encode_swapped(record: SegmentsSwapped) -> bytes:
    head = _SWAPPED.pack(
        record.number,
        record.job,
        record.attempt,
        record.first,
        record.last,
        record.layout_version,
        record.replaced,
        len(record.segments),
        len(record.runs),
    )
    parts = [head]
    for locator, object_bytes in record.segments:
        named = locator.encode()
        parts += (_SEGMENT.pack(object_bytes, len(named)), named)
    parts += [_RUN.pack(*run) for run in record.runs]
    return b"".join(parts)


def _decode_swapped(body: memoryview) -> SegmentsSwapped:
    number, job, attempt, first, last, layout, replaced, segments, runs = _SWAPPED.unpack_from(body)
    pos = _SWAPPED.size
    files: list[SegmentFile] = []
    for _ in range(segments):
        object_bytes, locator_bytes = _SEGMENT.unpack_from(body, pos)
        pos += _SEGMENT.size
        files.append(SegmentFile(str(body[pos : pos + locator_bytes], "utf-8"), object_bytes))
        pos += locator_bytes
    if pos + runs * RUN_BYTES != len(body):
        raise StoreDamaged("a SegmentsSwapped record does not have the length it claims")
    entered = [SegmentRun(*fields) for fields in _RUN.iter_unpack(body[pos:])]
    return SegmentsSwapped(number, job, attempt, first, last, layout, replaced, files, entered)


def _encode_job(record: PinTaken | PinReleased) -> bytes:
    return record.job


def _job(body: memoryview) -> bytes:
    if len(body) != JOB_BYTES:
        raise StoreDamaged("a record of a pin does not have the length of a job's id")
    return bytes(body)


def _decode_taken(body: memoryview) -> PinTaken:
    return PinTaken(_job(body))


def _decode_released(body: memoryview) -> PinReleased:
    return PinReleased(_job(body))


SEGMENTS_SWAPPED = RecordFormat(
    30, SegmentsSwapped, _encode_swapped, _decode_swapped, level=LEVEL_WITH_SEGMENTS
)
PIN_TAKEN = RecordFormat(34, PinTaken, _encode_job, _decode_taken, level=LEVEL_WITH_SEGMENTS)
PIN_RELEASED = RecordFormat(35, PinReleased, _encode_job, _decode_released, level=LEVEL_WITH_SEGMENTS)
