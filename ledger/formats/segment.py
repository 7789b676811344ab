"""Segments: batches of one partition in offset order (`.kfs`), and their sparse index (`.index`). Big-endian.

| `.kfs`           | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "KAFS"                                                               |
| 4      u16       | version = 1                                                                |
| 6      u16       | flags = 0                                                                  |
| 8      i64       | base offset                                                                |
| 16     i32       | message count: records of all batches                                      |
| 20     i64       | created, unix ms                                                           |
| 28     u32       | reserved = 0                                                               |
| 32 ...           | batches back to back, with their final offsets and leader epoch 0          |
| -16    u32       | CRC-32C over [32, length - 16)                                             |
| -12    i64       | last offset                                                                |
| -4     4         | "END!"                                                                     |

| `.index`         | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "IDX" and a zero byte                                                |
| 4      u16       | version = 1                                                                |
| 6      i32       | entries                                                                    |
| 10     i32       | interval: messages after which a batch gets an entry                       |
| 14     u16       | reserved = 0                                                               |
| 16 ... 12 each   | i64 offset, i32 position (from the first byte of the `.kfs`) of a batch    |

The first batch has an entry, and each batch that begins `interval` messages or more after the last one that
has. These are the bytes that KafScale writes. Gaps between offsets are legal: they are never counted, as in a
WAL object, but read from the headers of batches. Base offsets are outside of the CRC of a batch, and inside
of that of the segment. Ends of transactions are control batches of one message, as they are served; KafScale
has none.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from ledger.batch.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchError,
    outgoing_head,
    read_header,
    verify_crc,
    walk,
)
from ledger.errors import StoreDamaged, StoreTooNew
from ledger.keys import SegmentName
from ledger.partitions.runs import are_of_one_age, later_timestamp
from ledger.types import NO_TIMESTAMP, Buffer

SEGMENT_MAGIC: Final = b"KAFS"
INDEX_MAGIC: Final = b"IDX\0"
END: Final = b"END!"
VERSION: Final = 1
MAX_SEGMENT_BYTES: Final = 2**31 - 1
"""Positions are int32."""
MAX_MESSAGES: Final = 2**31 - 1
MAX_RUN_BYTES: Final = 4 * 1024 * 1024
"""Of a run, unless it is one batch that is larger."""
INDEX_INTERVAL: Final = 1_024

_HEAD = struct.Struct(">4sHHqiqI")
_TRAILER = struct.Struct(">Iq4s")
_INDEX_HEAD = struct.Struct(">4sHiiH")
_ENTRY = struct.Struct(">qi")
_BEGIN = struct.Struct(">4sH")
BEGIN_BYTES: Final = _BEGIN.size
HEAD_BYTES: Final = _HEAD.size
TRAILER_BYTES: Final = _TRAILER.size
INDEX_HEAD_BYTES: Final = _INDEX_HEAD.size
ENTRY_BYTES: Final = _ENTRY.size
_PATCHED_BYTES = 16
_SMALL_BYTES = 4 * 1024
"""Smaller batches are joined, so that a write has fewer buffers."""
_JOINED_BYTES = 64 * 1024


class SegmentBatch(NamedTuple):
    """A batch on its way into a segment: its final base offset, and its bytes as they are stored elsewhere,
    with any base offset. `untimed`: what the run's max timestamp is if no record has a timestamp
    (`ledger.partitions.runs.without_timestamp`), taken over from the run that the batch was in."""

    base_offset: int
    data: Buffer
    untimed: int = NO_TIMESTAMP


class EncodedRun(NamedTuple):
    """Adjacent batches of a segment as the ledger enters them: bytes [start, start + size) of the `.kfs` hold
    offsets from `base` to `last`, perhaps with gaps."""

    start: int
    size: int
    base: int
    last: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class SegmentBytes:
    """A segment to write: `buffers` in this order are the `.kfs`, `size` bytes in all; `index` is the
    `.index`."""

    buffers: list[Buffer]
    size: int
    runs: list[EncodedRun]
    index: bytes


class SegmentHead(NamedTuple):
    """The header of a `.kfs`."""

    base: int
    messages: int
    created_ms: int


class SegmentTrailer(NamedTuple):
    """The trailer of a `.kfs`: CRC-32C of its batches, and its last offset."""

    crc: int
    last: int


class IndexEntry(NamedTuple):
    """The batch at `position` has the base offset `offset`."""

    offset: int
    position: int


class SegmentIndex(NamedTuple):
    """An `.index`; its entries ascend by offset and position."""

    interval: int
    entries: Sequence[IndexEntry]


class VerifiedSegment(NamedTuple):
    """What a whole segment holds."""

    head: SegmentHead
    last: int
    batches: int


def encode_segment(
    batches: Iterable[SegmentBatch], base: int, created_ms: int, interval: int = INDEX_INTERVAL
) -> SegmentBytes:
    """A segment of these batches, which ascend by offset. `base` is at most the first offset; with
    `created_ms` it is in the segment's key too (`ledger.keys.segment_locator`).

    The bytes of large batches are passed on, not copied. CRCs are not checked. ValueError for no batches, for
    bytes that are not one batch of magic 2, for offsets that do not ascend, and for a segment that would have
    more than MAX_SEGMENT_BYTES or MAX_MESSAGES.
    """
    writer = _Writer(base, interval)
    for batch in batches:
        writer.add(batch)
    return writer.ended(created_ms)


class _Writer:
    def __init__(self, base: int, interval: int) -> None:
        if interval < 1:
            raise ValueError(f"an interval of {interval} messages; at least 1")
        self._base = base
        self._interval = interval
        self._since_entry = interval
        self._position = HEAD_BYTES
        self._last = base - 1
        self._messages = 0
        self._crc = 0
        self._runs: list[EncodedRun] = []
        # The run that is being filled, in parts: batches are many.
        self._run_start = HEAD_BYTES
        self._run_base = base
        self._run_stamp = NO_TIMESTAMP
        self._entries: list[bytes] = []
        self._body: list[Buffer] = []
        self._small = bytearray()

    def add(self, batch: SegmentBatch) -> None:
        base, data, untimed = batch
        view = memoryview(data)
        size = len(view)
        if size < HEADER_BYTES:
            raise ValueError(f"{size} bytes are not one record batch")
        # Not `read_header`: batches are many, and a tuple with names for each is a tenth of a merge.
        _, length, _, magic, _, _, delta, _, max_timestamp, _, _, _, records = HEADER.unpack_from(view)
        if magic != MAGIC or length + LENGTH_PREFIX_BYTES != size:
            raise ValueError(f"{size} bytes are not one record batch")
        if base <= self._last or delta < 0 or records < 0:
            raise ValueError(f"offsets {base} to {base + delta} cannot follow {self._last}")
        self._messages += records
        if self._messages > MAX_MESSAGES or self._position + size + TRAILER_BYTES > MAX_SEGMENT_BYTES:
            raise ValueError(f"more than {MAX_SEGMENT_BYTES} bytes or {MAX_MESSAGES} messages in a segment")
        if self._since_entry >= self._interval:
            self._entries.append(_ENTRY.pack(base, self._position))
            self._since_entry = 0
        self._since_entry += records
        self._enter(base, size, max_timestamp if max_timestamp >= 0 else untimed)
        self._append(outgoing_head(base, length), view[_PATCHED_BYTES:])
        self._position += size
        self._last = base + delta

    def ended(self, created_ms: int) -> SegmentBytes:
        if self._position == HEAD_BYTES:
            raise ValueError("a segment without batches")
        self._end_run()
        self._flush()
        head = _HEAD.pack(SEGMENT_MAGIC, VERSION, 0, self._base, self._messages, created_ms, 0)
        trailer = _TRAILER.pack(self._crc, self._last, END)
        index = _INDEX_HEAD.pack(INDEX_MAGIC, VERSION, len(self._entries), self._interval, 0)
        return SegmentBytes(
            [head, *self._body, trailer],
            self._position + TRAILER_BYTES,
            self._runs,
            b"".join([index, *self._entries]),
        )

    def _enter(self, base: int, size: int, stamp: int) -> None:
        """A batch that comes next, into the run before it or into a new one."""
        filled = self._position - self._run_start
        before = self._run_stamp
        if filled and filled + size <= MAX_RUN_BYTES and are_of_one_age(before, stamp):
            if stamp != before:
                self._run_stamp = later_timestamp(before, stamp)
            return
        if filled:
            self._end_run()
        self._run_start, self._run_base, self._run_stamp = self._position, base, stamp

    def _end_run(self) -> None:
        size = self._position - self._run_start
        run = EncodedRun(self._run_start, size, self._run_base, self._last, self._run_stamp)
        self._runs.append(run)

    def _append(self, head: bytes, rest: memoryview) -> None:
        self._small += head
        if len(rest) < _SMALL_BYTES:
            self._small += rest
        else:
            self._flush()
            self._crc = crc32c(rest, self._crc)
            self._body.append(rest)
        if len(self._small) >= _JOINED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._small:
            self._crc = crc32c(self._small, self._crc)
            self._body.append(self._small)
            self._small = bytearray()


def version_of(data: Buffer) -> int | None:
    """The version of the segment that `data` begins with; None if it begins with none."""
    if len(data) < BEGIN_BYTES:
        return None
    magic, version = _BEGIN.unpack_from(data)
    return int(version) if magic == SEGMENT_MAGIC else None


def read_head(data: Buffer, where: str) -> SegmentHead:
    """The header, from the first HEAD_BYTES of a segment. StoreDamaged, StoreTooNew."""
    if len(data) < HEAD_BYTES:
        raise _damaged(where, f"{len(data)} bytes are too few for a header")
    magic, version, flags, base, messages, created_ms, reserved = _HEAD.unpack_from(data)
    _check_version(where, magic == SEGMENT_MAGIC, version)
    if flags or reserved or base < 0 or messages < 0:
        raise _damaged(where, "its header has values that no segment has")
    return SegmentHead(base, messages, created_ms)


def read_trailer(data: Buffer, where: str) -> SegmentTrailer:
    """The trailer, from the last TRAILER_BYTES of a segment. StoreDamaged."""
    if len(data) < TRAILER_BYTES:
        raise _damaged(where, f"{len(data)} bytes are too few for a trailer")
    crc, last, end = _TRAILER.unpack_from(data, len(data) - TRAILER_BYTES)
    if end != END:
        raise _damaged(where, "it does not end as a segment does, so it is cut short")
    return SegmentTrailer(crc, last)


def index_bytes(head: Buffer, where: str) -> int:
    """How long an index is, by its first INDEX_HEAD_BYTES. StoreDamaged, StoreTooNew."""
    return INDEX_HEAD_BYTES + _index_head(head, where)[0] * ENTRY_BYTES


def index_head(data: Buffer, where: str) -> tuple[int, int]:
    """How many entries an index has, and their interval, by its first INDEX_HEAD_BYTES. StoreDamaged,
    StoreTooNew."""
    return _index_head(data, where)


def index_entries(data: Buffer) -> list[IndexEntry]:
    """Some entries of an index, as they are."""
    return [IndexEntry._make(row) for row in _ENTRY.iter_unpack(data)]


def read_index(data: Buffer, where: str) -> SegmentIndex:
    """The whole index. StoreDamaged unless it is one, as long as it claims, with entries that ascend from the
    first batch on; StoreTooNew."""
    count, interval = _index_head(data, where)
    if len(data) != INDEX_HEAD_BYTES + count * ENTRY_BYTES:
        raise _damaged(where, f"{len(data)} bytes do not hold {count} entries")
    entries = [IndexEntry._make(row) for row in _ENTRY.iter_unpack(memoryview(data)[INDEX_HEAD_BYTES:])]
    if not entries or entries[0].position != HEAD_BYTES or entries[0].offset < 0:
        raise _damaged(where, "its first entry is not that of a first batch")
    for before, entry in pairwise(entries):
        if entry.offset <= before.offset or entry.position < before.position + HEADER_BYTES:
            raise _damaged(where, f"its entries do not ascend at offset {entry.offset}")
    return SegmentIndex(interval, entries)


def verify(data: Buffer, index: Buffer, where: str, name: SegmentName | None = None) -> VerifiedSegment:
    """Check every byte of a whole segment and of its index, also against what its key says. StoreDamaged
    names what is wrong; StoreTooNew."""
    view = memoryview(data)
    head, trailer = read_head(view, where), read_trailer(view, where)
    if len(view) < HEAD_BYTES + TRAILER_BYTES or len(view) > MAX_SEGMENT_BYTES:
        raise _damaged(where, f"no segment has {len(view)} bytes")
    if name is not None and (head.base, head.created_ms) != (name.base, name.created_ms):
        raise _damaged(where, "its header has not the base offset and creation time of its key")
    body = view[HEAD_BYTES : len(view) - TRAILER_BYTES]
    expected = read_index(index, f"the index of {where}")
    found, entries = _verify_batches(body, head, expected.interval, where)
    if found.last != trailer.last:
        raise _damaged(where, f"its last offset is {found.last}, its trailer has {trailer.last}")
    if crc32c(body) != trailer.crc:
        raise _damaged(where, "its batches do not match its CRC-32C")
    if entries != expected.entries:
        raise _damaged(f"the index of {where}", "its entries are not those of the batches")
    return found


def _verify_batches(
    body: memoryview, head: SegmentHead, interval: int, where: str
) -> tuple[VerifiedSegment, list[IndexEntry]]:
    """What the batches hold, and the index entries that they should have."""
    last, messages, count = head.base - 1, 0, 0
    since, entries = interval, list[IndexEntry]()
    try:
        for batch in walk(body):
            position = HEAD_BYTES + batch.position
            data = body[batch.position : batch.position + batch.size_bytes]
            if not verify_crc(data):
                raise _damaged(where, f"the batch at byte {position} does not match its CRC")
            if batch.base_offset <= last or batch.last_offset_delta < 0:
                raise _damaged(where, f"the offsets of the batch at byte {position} do not ascend")
            if since >= interval:
                entries.append(IndexEntry(batch.base_offset, position))
                since = 0
            records = read_header(data).record_count
            last, since = batch.base_offset + batch.last_offset_delta, since + records
            messages, count = messages + records, count + 1
    except BatchError as error:
        raise _damaged(where, error.reason) from error
    if not count or messages != head.messages:
        raise _damaged(where, f"it has {messages} messages, its header {head.messages}")
    return VerifiedSegment(head, last, count), entries


def _index_head(data: Buffer, where: str) -> tuple[int, int]:
    """Entries, and interval."""
    if len(data) < INDEX_HEAD_BYTES:
        raise _damaged(where, f"{len(data)} bytes are too few for the header of an index")
    magic, version, count, interval, reserved = _INDEX_HEAD.unpack_from(data)
    _check_version(where, magic == INDEX_MAGIC, version)
    if reserved or count < 1 or interval < 1:
        raise _damaged(where, "its header has values that no index has")
    return count, interval


def _check_version(where: str, is_magic: bool, version: int) -> None:
    if not is_magic:
        raise _damaged(where, "it does not begin as one")
    if version > VERSION:
        raise StoreTooNew(f"{where} has format version {version}; this build reads {VERSION}")
    if version != VERSION:
        raise _damaged(where, f"no format has version {version}")


def _damaged(where: str, reason: str) -> StoreDamaged:
    return StoreDamaged(f"{where} is damaged: {reason}")
