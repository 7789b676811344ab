"""Whole WAL frames as they are read back: what tests find in files that a gateway has written.

A gateway itself reads batches by their position, and of a frame only the header and the table.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from ledger.formats.wal import TRAILER_BYTES, DamagedFrame, is_table_of, read_frame_head
from ledger.types import TopicId

_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">16siIIiqhi")


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch of a frame as its table describes it; `start` counts from the frame's first byte."""

    topic_id: TopicId
    partition: int
    start: int
    size: int
    record_count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame, its CRCs right; `position` counts from the start of the scanned bytes."""

    position: int
    size: int
    batches: tuple[StoredBatch, ...]


def scan_frames(view: memoryview) -> Iterator[Frame | DamagedFrame]:
    """Every frame from the first byte on. Where one is torn or damaged, that is reported last.

    Batches are views of `view`.
    """
    position = 0
    while position < len(view):
        frame = read_frame(view, position)
        yield frame
        if isinstance(frame, DamagedFrame):
            return
        position += frame.size


def read_frame(view: memoryview, position: int = 0) -> Frame | DamagedFrame:
    """The frame at `position`."""
    rest = view[position:]
    head = read_frame_head(rest, position)
    if isinstance(head, DamagedFrame):
        return head
    size, batches_at = head.size, head.header_bytes + head.table_bytes
    if size > len(rest):
        return DamagedFrame(position, f"{len(rest)} bytes of a frame of {size}", is_torn=True)
    body_end = size - TRAILER_BYTES
    if not is_table_of(head, rest[head.header_bytes : batches_at]):
        return DamagedFrame(position, "the table does not match its CRC", is_torn=False)
    if crc32c(rest[head.header_bytes : body_end]) != _CRC.unpack_from(rest, body_end)[0]:
        return DamagedFrame(position, "table and batches do not match their CRC", is_torn=False)
    batches = _read_table(rest, head.header_bytes, batches_at, body_end)
    if batches is None:
        return DamagedFrame(position, "the table does not describe the batches", is_torn=False)
    return Frame(position, size, batches)


def _read_table(
    frame: memoryview, table_at: int, batches_at: int, end: int
) -> tuple[StoredBatch, ...] | None:
    """None unless the entries cover the batches exactly, each where the one before it ends."""
    batches, expected = [], batches_at
    for topic_id, partition, start, size, count, producer_id, epoch, sequence in _ENTRY.iter_unpack(
        frame[table_at:batches_at]
    ):
        if start != expected:
            return None
        expected = start + size
        data = frame[start:expected]
        batches.append(
            StoredBatch(TopicId(topic_id), partition, start, size, count, producer_id, epoch, sequence, data)
        )
    return tuple(batches) if expected == end else None
