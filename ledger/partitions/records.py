"""Metadata records of offsets, runs and producers, and their bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from ledger.errors import StoreDamaged
from ledger.objects.state import Origin, origin_of
from ledger.objects.uploads import NO_UPLOADER, Upload, Uploader
from ledger.records import LEVEL_WITH_ORIGINS, RecordFormat

_FILE = struct.Struct(">HqII")
_ORIGIN = struct.Struct(">BBqi16sQQ")
"""Kind, store, creation time, gateway (or -1), incarnation, draft (or 0), settled drafts."""
RUN = struct.Struct(">IIIqqqI")
BATCH = struct.Struct(">IIqqhih")
_NUMBER_OFFSET = struct.Struct(">Iq")
_NUMBER_COUNT = struct.Struct(">II")
_I64 = struct.Struct(">q")

RunRow: TypeAlias = tuple[int, int, int, int, int, int, int]
"""(partition number, start, size, base offset, last offset, max timestamp, batch count). A plain tuple,
unlike everything else here: thousands a second are unpacked and applied. A max timestamp below zero is of
records without one: -1, or -2 - (the unix ms of the entry) (`ledger.runs.without_timestamp`)."""

BatchRow: TypeAlias = tuple[int, int, int, int, int, int, int]
"""(size, record count, max timestamp, producer id, producer epoch, base sequence, attributes)."""


class FileCommitted(msgspec.Struct, frozen=True):
    """Batches of one object got their offsets. `runs` in object order, their batches in `batches`.

    `origin` and `upload` are None at feature level 1, and where the request has none.
    """

    locator: str
    object_bytes: int
    runs: Sequence[RunRow]
    batches: Sequence[BatchRow]
    origin: Origin | None = None
    upload: Upload | None = None


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """The log start offset moved up."""

    number: int
    log_start: int


@dataclass(frozen=True, slots=True)
class RunsDropped:
    """The first `count` runs of a deleted partition, or of those below its log start, are released."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """Producer ids below `next_id` are taken."""

    next_id: int


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    """(partition number, producer id) pairs that were silent for too long."""

    pairs: Sequence[tuple[int, int]]


def _encode_file(record: FileCommitted) -> bytes:
    return _file(record, b"")


def _encode_file_with_origin(record: FileCommitted) -> bytes:
    kind, store, created_ms, uploader = record.origin or origin_of(record.locator)
    upload = record.upload or Upload(uploader or NO_UPLOADER, 0, 0)
    return _file(
        record, _ORIGIN.pack(kind, store, created_ms, *upload.uploader, upload.draft, upload.settled)
    )


def _file(record: FileCommitted, origin: bytes) -> bytes:
    locator = record.locator.encode()
    head = _FILE.pack(len(locator), record.object_bytes, len(record.runs), len(record.batches))
    run, batch = RUN.pack, BATCH.pack
    return b"".join(
        [head, origin, locator, *[run(*row) for row in record.runs], *[batch(*row) for row in record.batches]]
    )


def _decode_file(body: memoryview) -> FileCommitted:
    return _file_of(body, _FILE.size, None, None)


def _decode_file_with_origin(body: memoryview) -> FileCommitted:
    kind, store, created_ms, gateway, incarnation, draft, settled = _ORIGIN.unpack_from(body, _FILE.size)
    uploader = Uploader(gateway, incarnation)
    upload = Upload(uploader, draft, settled) if draft else None
    origin = Origin(kind, store, created_ms, None if uploader == NO_UPLOADER else uploader)
    return _file_of(body, _FILE.size + _ORIGIN.size, origin, upload)


def _file_of(body: memoryview, pos: int, origin: Origin | None, upload: Upload | None) -> FileCommitted:
    locator_bytes, object_bytes, runs, batches = _FILE.unpack_from(body)
    locator = str(body[pos : pos + locator_bytes], "utf-8")
    pos += locator_bytes
    split = pos + runs * RUN.size
    if split + batches * BATCH.size != len(body):
        raise StoreDamaged("a FileCommitted record does not have the length it claims")
    return FileCommitted(
        locator,
        object_bytes,
        list(RUN.iter_unpack(body[pos:split])),
        list(BATCH.iter_unpack(body[split:])),
        origin,
        upload,
    )


def _encode_records_deleted(record: RecordsDeleted) -> bytes:
    return _NUMBER_OFFSET.pack(record.number, record.log_start)


def _decode_records_deleted(body: memoryview) -> RecordsDeleted:
    return RecordsDeleted(*_NUMBER_OFFSET.unpack(body))


def _encode_runs_dropped(record: RunsDropped) -> bytes:
    return _NUMBER_COUNT.pack(record.number, record.count)


def _decode_runs_dropped(body: memoryview) -> RunsDropped:
    return RunsDropped(*_NUMBER_COUNT.unpack(body))


def _encode_reserved(record: ProducerIdsReserved) -> bytes:
    return _I64.pack(record.next_id)


def _decode_reserved(body: memoryview) -> ProducerIdsReserved:
    return ProducerIdsReserved(*_I64.unpack(body))


def _encode_expired(record: ProducersExpired) -> bytes:
    return b"".join(_NUMBER_OFFSET.pack(number, producer) for number, producer in record.pairs)


def _decode_expired(body: memoryview) -> ProducersExpired:
    return ProducersExpired(list(_NUMBER_OFFSET.iter_unpack(body)))


FILE_COMMITTED = RecordFormat(
    5,
    FileCommitted,
    _encode_file_with_origin,
    _decode_file_with_origin,
    version=1,
    level=LEVEL_WITH_ORIGINS,
    older=RecordFormat(5, FileCommitted, _encode_file, _decode_file),
)
RECORDS_DELETED = RecordFormat(6, RecordsDeleted, _encode_records_deleted, _decode_records_deleted)
RUNS_DROPPED = RecordFormat(7, RunsDropped, _encode_runs_dropped, _decode_runs_dropped)
PRODUCER_IDS_RESERVED = RecordFormat(8, ProducerIdsReserved, _encode_reserved, _decode_reserved)
PRODUCERS_EXPIRED = RecordFormat(9, ProducersExpired, _encode_expired, _decode_expired)
