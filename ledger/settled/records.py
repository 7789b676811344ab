"""The metadata record of settled ledgers, and its bytes."""

import struct
from dataclasses import dataclass

from ledger.errors import StoreDamaged
from ledger.records import LEVEL_WITH_SETTLED, RecordFormat
from ledger.settled.requests import SettledFiles

_NAMED = struct.Struct(">I16siqqqqqq")
"""Partition number, job, attempt, bytes of the three files, entry, high watermark,
layout version."""


@dataclass(frozen=True, slots=True)
class SettledNamed:
    """From this entry on a settled ledger is the newest one of its partition."""

    number: int
    job: bytes
    attempt: int
    files: SettledFiles
    entry: int
    high_watermark: int
    layout_version: int


def _encode(record: SettledNamed) -> bytes:
    locator, *sizes = record.files
    of_job = record.number, record.job, record.attempt
    as_of = record.entry, record.high_watermark, record.layout_version
    return _NAMED.pack(*of_job, *sizes, *as_of) + locator.encode()


def _decode(body: memoryview) -> SettledNamed:
    if len(body) <= _NAMED.size:
        raise StoreDamaged("a SettledNamed record names no object")
    number, job, attempt, log, index, meta, *as_of = _NAMED.unpack_from(body)
    files = SettledFiles(str(body[_NAMED.size :], "utf-8"), log, index, meta)
    return SettledNamed(number, job, attempt, files, *as_of)


SETTLED_NAMED = RecordFormat(36, SettledNamed, _encode, _decode, level=LEVEL_WITH_SETTLED)
