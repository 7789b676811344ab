"""The WAL frame: one flush of record batches of many partitions (big-endian).

| bytes            | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "DWAL"                                                               |
| 4      u16       | version = 1, or 2 from feature level 2 of the journal on                   |
| 6      u16       | flags = 0                                                                  |
| 8      u32       | frame bytes: all of it, from the magic to the last CRC                     |
| 12     u32       | table bytes = 46 x batches                                                 |
| 16     u32       | batches                                                                    |
| 20     u32       | version 2 alone: CRC-32C of the table                                      |
| 20, 24 u32       | CRC-32C of all before it                                                   |
| 24, 28 46 each   | table: 16 topic id, i32 partition, u32 start (from the frame's first byte),|
|                  | u32 size, i32 record count, i64 producer id, i16 producer epoch,           |
|                  | i32 base sequence                                                          |
| then             | batches back to back in the order of the table, grouped by partition       |
| -4     u32       | CRC-32C of table and batches                                               |

Magic and version stay where they are in every version. On blobs an object is one frame. A local object is
a file: frames one after the other, found by scanning forward. Positions of batches are known to the ledger;
the table is for diagnosis, and says where the next batch begins when one is damaged. In version 1 its only
CRC also covers the batches, so that it is a hint then: `batches_of_run` says when to believe it.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, TopicId

MAGIC: Final = b"DWAL"
VERSION: Final = 2
"""The newest that is read."""
FIRST_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 2**31 - 1
"""Starts and sizes must also fit the int32 of the KIP-1164 API."""

_HEADS = {1: struct.Struct(">4sHHIII"), 2: struct.Struct(">4sHHIIII")}
"""By version, without their CRC."""
_HEAD = _HEADS[1]
_BEGIN = struct.Struct(">4sH")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">16siIIiqhi")
BEGIN_BYTES: Final = _BEGIN.size
HEADER_BYTES: Final = _HEAD.size + _CRC.size
"""Of the shortest header."""
MAX_HEADER_BYTES: Final = _HEADS[VERSION].size + _CRC.size
"""Of the longest."""
ENTRY_BYTES: Final = _ENTRY.size
TRAILER_BYTES: Final = _CRC.size


class EncodedFrame(msgspec.Struct, frozen=True):
    """A frame to write: `buffers` in this order, `size` bytes in all; `starts` in the order of the draft."""

    buffers: list[Buffer]
    size: int
    starts: list[int]


class FrameLayout(NamedTuple):
    """Of a frame to write: batches by index in the order of the table, the start of each in the order of the
    draft, from the frame's first byte, and the bytes of the whole frame."""

    version: int
    order: list[int]
    starts: list[int]
    size: int


class FrameHead(NamedTuple):
    """The header of a frame, its CRC right: bytes of the whole frame, of its header and of its table.

    `table_crc`: of the table alone; None in version 1.
    """

    size: int
    header_bytes: int
    table_bytes: int
    table_crc: int | None


class TableBatch(NamedTuple):
    """A batch as a table describes it."""

    start: int
    size: int
    record_count: int


@dataclass(frozen=True, slots=True)
class DamagedFrame:
    """Where a frame cannot be read, and why.

    `is_torn`: the bytes end within the frame, as a crash in the middle of a write leaves them.
    """

    position: int
    reason: str
    is_torn: bool


def frame_version(feature_level: int) -> int:
    """The version of the frames that a journal of this level may name."""
    return FIRST_VERSION if feature_level == FIRST_LEVEL else VERSION


def frame_layout(batches: Sequence[DraftBatch], version: int = FIRST_VERSION) -> FrameLayout:
    """Where the batches of a frame are, before it is encoded: grouped by partition, the order within a
    partition kept. Raises ValueError for no batches, or for a frame above MAX_FRAME_BYTES."""
    if not batches:
        raise ValueError("a frame without batches")
    order = _grouped(batches)
    start = _HEADS[version].size + _CRC.size + len(batches) * ENTRY_BYTES
    starts = [0] * len(batches)
    for index in order:
        starts[index] = start
        start += len(batches[index].data)
    size = start + TRAILER_BYTES
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {size} bytes; the most is {MAX_FRAME_BYTES}")
    return FrameLayout(version, order, starts, size)


def encode_frame(batches: Sequence[DraftBatch], version: int = FIRST_VERSION) -> EncodedFrame:
    """A frame of these batches. Raises ValueError as `frame_layout`."""
    return encode_laid_out(batches, frame_layout(batches, version))


def encode_laid_out(batches: Sequence[DraftBatch], laid_out: FrameLayout) -> EncodedFrame:
    """The frame of these batches, which have this layout.

    The batches' bytes are passed on, never copied or joined.
    """
    version, size = laid_out.version, laid_out.size
    table_bytes = len(batches) * ENTRY_BYTES
    layout = _HEADS[version]
    table_at = layout.size + _CRC.size
    head = bytearray(table_at + table_bytes)
    buffers: list[Buffer] = [head]
    entry_at = table_at
    for index in laid_out.order:
        batch = batches[index]
        _pack_entry(head, entry_at, batch, laid_out.starts[index])
        entry_at += ENTRY_BYTES
        buffers.append(batch.data)
    crc = crc32c(memoryview(head)[table_at:])
    fields = (MAGIC, version, 0, size, table_bytes, len(batches))
    layout.pack_into(head, 0, *fields, *(() if version == FIRST_VERSION else (crc,)))
    _CRC.pack_into(head, layout.size, crc32c(head[: layout.size]))
    for data in buffers[1:]:
        crc = crc32c(data, crc)
    buffers.append(_CRC.pack(crc))
    return EncodedFrame(buffers, size, laid_out.starts)


def version_of(data: Buffer) -> int | None:
    """The version of the frame that `data` begins with; None if it begins with none."""
    if len(data) < BEGIN_BYTES:
        return None
    magic, version = _BEGIN.unpack_from(data)
    return int(version) if magic == MAGIC else None


def read_frame_head(view: memoryview, position: int = 0) -> FrameHead | DamagedFrame:
    """The header of the frame that `view` begins with; `position` is where that is, for the reason."""
    if len(view) < HEADER_BYTES:
        return _torn(position, f"{len(view)} bytes are too few for a frame header of {HEADER_BYTES}")
    magic, version, flags, size, table_bytes, count = _HEAD.unpack_from(view)
    if magic != MAGIC:
        return _damaged(position, f"no frame begins here: {bytes(magic).hex()}")
    # Of an unknown version, or a damaged one, the CRC of a version 1 says which it is.
    layout = _HEADS.get(version, _HEAD)
    header_bytes = layout.size + _CRC.size
    if len(view) < header_bytes:
        return _torn(position, f"{len(view)} bytes are too few for a frame header of {header_bytes}")
    if crc32c(view[: layout.size]) != _CRC.unpack_from(view, layout.size)[0]:
        return _damaged(position, "the frame header does not match its CRC")
    if version not in _HEADS or flags != 0:
        return _damaged(position, f"frame version {version} with flags {flags} is not known here")
    if table_bytes != count * ENTRY_BYTES or size < header_bytes + table_bytes + TRAILER_BYTES:
        return _damaged(position, f"{count} batches cannot be in a frame of {size} bytes")
    table_crc = None if version == FIRST_VERSION else int(_CRC.unpack_from(view, _HEAD.size)[0])
    return FrameHead(size, header_bytes, table_bytes, table_crc)


def is_table_of(head: FrameHead, table: memoryview) -> bool:
    """False if the table is certainly damaged. In version 1 that cannot be known."""
    return len(table) == head.table_bytes and head.table_crc in (None, crc32c(table))


def read_table(table: memoryview, frame_start: int) -> Iterator[tuple[TopicId, int, TableBatch]]:
    """(topic id, partition, batch) for each row; starts count from the object's first byte."""
    for topic_id, partition, start, size, count, *_ in _ENTRY.iter_unpack(table):
        yield TopicId(topic_id), partition, TableBatch(frame_start + start, size, count)


def batches_of_run(
    table: memoryview, frame_start: int, topic_id: TopicId, partition: int, run: tuple[int, int, int]
) -> list[TableBatch] | None:
    """The batches of a run, given as (start, size, records), by the table of the frame that begins at
    `frame_start` of the same object; starts count from the object's first byte.

    With a damaged batch the CRC of the table says nothing. So it is believed only where its batches cover
    the run exactly, are all of this partition, and have its number of records together; else None. A caller
    that goes on after a damaged batch by it still has to check CRC, size and record count of the next one.
    """
    run_start, run_bytes, records = run
    found: list[TableBatch] = []
    expected = run_start
    for row_topic, row_partition, row_start, size, count, *_ in _ENTRY.iter_unpack(table):
        start = frame_start + row_start
        if not run_start <= start < run_start + run_bytes:
            continue
        if start != expected or row_topic != topic_id or row_partition != partition or count < 1:
            return None
        expected = start + size
        found.append(TableBatch(start, size, count))
    if expected != run_start + run_bytes or sum(batch.record_count for batch in found) != records:
        return None
    return found


def _grouped(batches: Sequence[DraftBatch]) -> list[int]:
    """Indexes of the batches, those of one partition side by side, partitions as they first come."""
    partitions: dict[tuple[TopicId, int], list[int]] = {}
    for index, batch in enumerate(batches):
        partitions.setdefault((batch.topic_id, batch.partition), []).append(index)
    return [index for indexes in partitions.values() for index in indexes]


def _pack_entry(head: bytearray, at: int, batch: DraftBatch, start: int) -> None:
    _ENTRY.pack_into(
        head,
        at,
        batch.topic_id,
        batch.partition,
        start,
        len(batch.data),
        batch.record_count,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )


def _torn(position: int, reason: str) -> DamagedFrame:
    return DamagedFrame(position, reason, is_torn=True)


def _damaged(position: int, reason: str) -> DamagedFrame:
    return DamagedFrame(position, reason, is_torn=False)
