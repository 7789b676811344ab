"""A file of the local log: journal entries, each in a frame with the batches that it numbers (big-endian).

| file             | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4096      | header                                                                     |
| 4096 ...         | frames one after the other, each from a multiple of the header's alignment |

| header           | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "DLOG"                                                               |
| 4      u16       | version = 1                                                                |
| 6      u16       | flags = 0                                                                  |
| 8      16        | cluster id; of a log that began before there was one a random id           |
| 24     16        | file id: in the name of the file and in all of its frames                  |
| 40     i32       | shard                                                                      |
| 44     u32       | alignment: 1, or 4096 for direct I/O                                       |
| 48     i64       | sequence: greater than that of every file that was there before            |
| 56     i64       | first entry                                                                |
| 64     u32       | seal of the frame before the first entry; 0 if that entry has no frame     |
| 68     16        | nonce of the entry before the first one; zeros before entry 0              |
| 84     i64       | created, unix ms                                                           |
| 92     16        | boot: a start of the host and a directory (0065); zeros if not known       |
| 108    u32       | CRC-32C of [0, 108)                                                        |
| 112 ...          | zeros                                                                      |

| frame            | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "DLFR"                                                               |
| 4      u16       | version = 1                                                                |
| 6      u16       | flags = 0                                                                  |
| 8      16        | file id                                                                    |
| 24     i64       | entry number                                                               |
| 32     u32       | seal of the frame before; of the first frame: that of the header           |
| 36     u32       | bytes of the entry                                                         |
| 40     u32       | bytes of the batches; 0 if there are none                                  |
| 44     u32       | CRC-32C of [0, 44)                                                         |
| 48 ...           | batches: one WAL frame of version 2 (`ledger/formats/wal.py`)              |
| then             | entry (`ledger/journal.py`), which names the batches by their positions    |
| -4     u32       | seal: CRC-32C of the head, of the last 4 bytes of the WAL frame (they are  |
|                  | the CRC of its batches), and of the entry                                  |

A file is used again when nothing in it is needed any more: it gets another file id, so old frames in it are
none. A frame is begun only after the one before is durable. So a torn frame is the last one: where a frame of
the same file follows later, one that was durable is damaged.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.wal import TRAILER_BYTES as WAL_TRAILER_BYTES
from ledger.formats.wal import DamagedFrame, EncodedFrame, read_frame_head
from ledger.journal import MAX_ENTRY_BYTES, NONCE_BYTES, REMEDY
from ledger.types import Buffer

VERSION: Final = 1
MAGIC: Final = b"DLOG"
FRAME_MAGIC: Final = b"DLFR"
HEADER_BYTES: Final = 4096
"""One block: with direct I/O no write of a frame touches it."""
ID_BYTES: Final = 16
DIRECT: Final = 4096
"""The alignment for direct I/O."""
BUFFERED: Final = 1
ALIGNMENTS: Final = (BUFFERED, DIRECT)
NO_SEAL: Final = 0
NO_BOOT: Final = bytes(ID_BYTES)

_HEADER = struct.Struct(f">4sHH{ID_BYTES}s{ID_BYTES}siIqqI{NONCE_BYTES}sq{ID_BYTES}s")
_BEGIN = struct.Struct(">4sHH")
_FRAME = struct.Struct(f">4sHH{ID_BYTES}sqIII")
_CRC = struct.Struct(">I")
FRAME_HEAD_BYTES: Final = _FRAME.size + _CRC.size
SEAL_BYTES: Final = _CRC.size
SEARCH_BYTES: Final = 1024 * 1024
"""What is looked through at a time for a later frame."""


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Of a file: what it goes on with, and after what."""

    cluster_id: bytes
    file_id: bytes
    shard: int
    sequence: int
    first_entry: int
    previous_seal: int
    previous_nonce: bytes
    created_ms: int
    alignment: int = BUFFERED
    boot: bytes = NO_BOOT
    """The start of the host in which it was written: within one, all that was written can be read, in the
    order in which it was written, whichever process has died."""


class EncodedLogFrame(NamedTuple):
    """A frame to write at a position: `buffers` in this order, `size` bytes in all, padding included.

    `seal` goes into the next frame.
    """

    buffers: Sequence[Buffer]
    size: int
    seal: int


class LogFrame(NamedTuple):
    """A whole frame that was read. `end`: where the next one begins.

    `batches`: where its WAL frame is in the file, as (position, bytes); (0, 0) without batches.
    """

    number: int
    position: int
    end: int
    entry: memoryview
    batches: tuple[int, int]
    previous_seal: int
    seal: int


class FrameExtent(NamedTuple):
    """Where a frame and its WAL frame are in a file, as its head says. `batches_bytes` 0: it has none."""

    batches_at: int
    batches_bytes: int
    end: int


class LogFrameHead(NamedTuple):
    """The head of a frame at a position. Its entry is at `entry_at`, its seal at `end` - SEAL_BYTES, before
    the padding; `crc` is that of the head."""

    number: int
    position: int
    entry_at: int
    entry_bytes: int
    wal_bytes: int
    previous_seal: int
    crc: int

    @property
    def end(self) -> int:
        return self.entry_at + self.entry_bytes + SEAL_BYTES

    @property
    def sealed_at(self) -> int:
        """Where the bytes begin that the seal covers besides the head: the CRC of the batches, if any."""
        return self.entry_at - (WAL_TRAILER_BYTES if self.wal_bytes else 0)


class Torn(NamedTuple):
    """No frame begins at `position`, or one that was not written to its end: here the file ends."""

    position: int
    reason: str
    is_damage: bool = False
    """A frame that was written whole is there, and not the one that belongs there."""


def encode_header(header: LogHeader) -> bytes:
    """The first block of a file."""
    if header.alignment not in ALIGNMENTS:
        raise ValueError(f"an alignment of {header.alignment} bytes; possible are {ALIGNMENTS}")
    packed = _HEADER.pack(
        MAGIC,
        VERSION,
        0,
        header.cluster_id,
        header.file_id,
        header.shard,
        header.alignment,
        header.sequence,
        header.first_entry,
        header.previous_seal,
        header.previous_nonce,
        header.created_ms,
        header.boot,
    )
    return (packed + _CRC.pack(crc32c(packed))).ljust(HEADER_BYTES, b"\0")


def read_header(data: Buffer, where: str) -> LogHeader | None:
    """The header that a file begins with. None if that was never written whole: then nothing in the file
    counts, as a frame is written only after its header is durable. StoreTooNew for a later version."""
    view = memoryview(data)[:HEADER_BYTES]
    if len(view) < HEADER_BYTES:
        return None
    crc = _CRC.unpack_from(view, _HEADER.size)[0]
    magic, version, flags = _BEGIN.unpack_from(view)
    if magic != MAGIC:
        return None
    if crc32c(view[: _HEADER.size]) != crc:
        return None
    if version != VERSION or flags:
        raise StoreTooNew(f"log file {where} has format version {version}; this build reads {VERSION}")
    fields = _HEADER.unpack_from(view)[3:]
    cluster_id, file_id, shard, alignment, sequence, first_entry, seal, nonce, created_ms, boot = fields
    if alignment not in ALIGNMENTS:
        raise StoreDamaged(f"log file {where} says that its frames are aligned at {alignment} bytes")
    after = first_entry, seal, nonce
    return LogHeader(cluster_id, file_id, shard, sequence, *after, created_ms, alignment, boot)


def batches_at(position: int) -> int:
    """Where the WAL frame begins in a frame that begins at `position`: the starts of its batches count from
    there. So the entry can name them before it is written."""
    return position + FRAME_HEAD_BYTES


def encode_frame(
    header: LogHeader, number: int, previous_seal: int, entry: bytes, batches: EncodedFrame | None = None
) -> EncodedLogFrame:
    """The frame of an entry, and of the batches that it numbers."""
    if not 0 < len(entry) <= MAX_ENTRY_BYTES:
        raise ValueError(f"an entry of {len(entry)} bytes; the most is {MAX_ENTRY_BYTES}")
    wal: list[Buffer] = [] if batches is None else batches.buffers
    wal_bytes = 0 if batches is None else batches.size
    fields = (FRAME_MAGIC, VERSION, 0, header.file_id, number, previous_seal, len(entry), wal_bytes)
    packed = _FRAME.pack(*fields)
    head = packed + _CRC.pack(crc32c(packed))
    seal = crc32c(entry, crc32c(wal[-1], crc32c(head)) if wal else crc32c(head))
    size = FRAME_HEAD_BYTES + wal_bytes + len(entry) + SEAL_BYTES
    padding = aligned(size, header.alignment) - size
    end = _CRC.pack(seal) + bytes(padding)
    return EncodedLogFrame([head, *wal, entry, end], size + padding, seal)


def read_head(header: LogHeader, head: Buffer, position: int, number: int, seal: int) -> LogFrameHead | Torn:
    """The first FRAME_HEAD_BYTES of the frame of entry `number` at `position`, after the frame with this
    seal."""
    found = _read_any_head(header, head, position)
    if isinstance(found, LogFrameHead) and (found.number, found.previous_seal) != (number, seal):
        place = f"a frame of entry {found.number} is in the place of entry {number}"
        return Torn(position, f"{place}, or goes on after another one", is_damage=True)
    return found


def _read_any_head(header: LogHeader, head: Buffer, position: int) -> LogFrameHead | Torn:
    """The same, whatever its number and the seal before it."""
    view = memoryview(head)[:FRAME_HEAD_BYTES]
    if len(view) < FRAME_HEAD_BYTES:
        return Torn(position, "the file ends")
    magic, version, flags, file_id, number, previous, entry_bytes, wal_bytes = _FRAME.unpack_from(view)
    if magic != FRAME_MAGIC or file_id != header.file_id:
        return Torn(position, "no frame of this file begins here")
    if not _is_sealed(view):
        return Torn(position, "the head of the frame does not match its CRC")
    if (version, flags) != (VERSION, 0):
        raise StoreTooNew(f"a frame at {position} has format version {version}; this build reads {VERSION}")
    entry_at = batches_at(position) + wal_bytes
    return LogFrameHead(number, position, entry_at, entry_bytes, wal_bytes, previous, crc32c(view))


def check_seal(head: LogFrameHead, sealed: Buffer) -> int | None:
    """The seal of the frame, if it is right; else None. `sealed`: the bytes [head.sealed_at, head.end). The
    batches are not looked at but for their CRC, which the seal covers."""
    view = memoryview(sealed)
    if len(view) != head.end - head.sealed_at:
        return None
    seal = crc32c(view[:-SEAL_BYTES], head.crc)
    return seal if seal == _CRC.unpack_from(view, len(view) - SEAL_BYTES)[0] else None


def read_frame(header: LogHeader, view: memoryview, position: int, number: int, seal: int) -> LogFrame | Torn:
    """The frame of entry `number` at `position` of a file, after the frame with this seal. All of its bytes
    are checked. `view` is the whole file."""
    head = read_head(header, view[position : position + FRAME_HEAD_BYTES], position, number, seal)
    if isinstance(head, Torn):
        return head
    if head.end > len(view):
        return Torn(position, "the file ends in the frame")
    wal_at = position + FRAME_HEAD_BYTES
    if head.wal_bytes and (reason := batches_fault(view[wal_at : head.entry_at])):
        return Torn(position, reason)
    found = check_seal(head, view[head.sealed_at : head.end])
    if found is None:
        return Torn(position, "the frame does not match its CRC")
    entry = view[head.entry_at : head.end - SEAL_BYTES]
    batches = (wal_at, head.wal_bytes) if head.wal_bytes else (0, 0)
    end = aligned(head.end, header.alignment)
    return LogFrame(number, position, end, entry, batches, head.previous_seal, found)


def read_frame_extent(header: LogHeader, head: memoryview, position: int) -> FrameExtent | Torn:
    """Of the frame of this file from `position` on, whatever its number and seal: for what looks at batches
    alone. `head`: its first FRAME_HEAD_BYTES bytes."""
    found = _read_any_head(header, head, position)
    if isinstance(found, Torn):
        return found
    return FrameExtent(batches_at(position), found.wal_bytes, aligned(found.end, header.alignment))


def version_of(data: Buffer) -> int | None:
    """The format version of the file that begins with these bytes; None if it is no log file."""
    if len(data) < _BEGIN.size:
        return None
    magic, version, _ = _BEGIN.unpack_from(data)
    return int(version) if magic == MAGIC else None


def read_frames(header: LogHeader, view: memoryview, where: str) -> Iterator[LogFrame | Torn]:
    """All frames of a file in order; at last where they end. StoreDamaged if one that was durable is damaged:
    a frame of this file follows later."""
    position, number, seal = HEADER_BYTES, header.first_entry, header.previous_seal
    while isinstance(found := read_frame(header, view, position, number, seal), LogFrame):
        yield found
        position, number, seal = found.end, number + 1, found.seal
    later = later_frame(header.file_id, view[position + 1 :], number)
    if later is not None or found.is_damage:
        reason = found.reason if later is None else f"{found.reason}, and entry {later} follows"
        raise StoreDamaged(f"log file {where} is damaged at {position}: {reason}; {REMEDY}")
    yield found


def aligned(size: int, alignment: int) -> int:
    """Rounded up."""
    return -(-size // alignment) * alignment


def batches_fault(wal: memoryview) -> str:
    """Why these bytes are no whole WAL frame; empty if they are."""
    head = read_frame_head(wal)
    if isinstance(head, DamagedFrame):
        return head.reason
    if head.size != len(wal):
        return f"batches of {head.size} bytes are in the place of {len(wal)}"
    body_crc = crc32c(wal[head.header_bytes : -WAL_TRAILER_BYTES])
    if body_crc != _CRC.unpack_from(wal, len(wal) - WAL_TRAILER_BYTES)[0]:
        return "the batches do not match their CRC"
    return ""


def later_frame(file_id: bytes, view: memoryview, number: int) -> int | None:
    """The entry of a frame of this file within `view`, if it is after `number`; None if there is none.
    Records may have such bytes too: a Kafka client does not get the file id, but who sees locators does."""
    pattern = _BEGIN.pack(FRAME_MAGIC, VERSION, 0) + file_id
    for piece_at in range(0, len(view), SEARCH_BYTES):
        piece = bytes(view[piece_at : piece_at + SEARCH_BYTES + len(pattern) - 1])
        at = piece.find(pattern)
        while at >= 0:
            head = view[piece_at + at : piece_at + at + FRAME_HEAD_BYTES]
            if len(head) == FRAME_HEAD_BYTES and _is_sealed(head):
                found = int(_FRAME.unpack_from(head)[4])
                if found > number:
                    return found
            at = piece.find(pattern, at + 1)
    return None


def _is_sealed(head: memoryview) -> bool:
    """Its CRC is right."""
    return bool(_CRC.unpack_from(head, _FRAME.size)[0] == crc32c(head[: _FRAME.size]))
