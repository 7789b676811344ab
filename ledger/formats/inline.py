"""The value of a journal entry that has record batches inside (big-endian).

| bytes            | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "DJE1", as every entry begins                                        |
| 4      u16       | version = 2; an entry without batches has version 1 (`ledger/journal.py`)  |
| 6      u16       | flags = 0                                                                  |
| 8      u32       | bytes of the batches                                                       |
| 12     u32       | bytes of the entry                                                         |
| 16     u32       | zeros                                                                      |
| 20     16        | nonce of the entry, where version 1 has it                                 |
| 36     u32       | CRC-32C of [0, 36)                                                         |
| 40 ...           | batches: one WAL frame of version 2 (`ledger/formats/wal.py`)              |
| then             | the entry, of version 1, which names the batches by their positions        |

A build that knows only version 1 refuses such an entry as one of a newer version. Positions of batches count
from the first byte of the WAL frame. Each part has its own CRC.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.wal import TRAILER_BYTES, EncodedFrame
from ledger.journal import MAGIC, NONCE_BYTES, REMEDY, nonce_of
from ledger.types import Buffer

VERSION: Final = 2

_BEGIN = struct.Struct(">4sH")
_HEAD = struct.Struct(f">4sHHIII{NONCE_BYTES}s")
_CRC = struct.Struct(">I")
INLINE_HEAD_BYTES: Final = _HEAD.size + _CRC.size


class EntryValue(NamedTuple):
    """An entry as the journal has it, and the WAL frame of the batches inside; empty if there are none."""

    entry: bytes
    batches: bytes


def encode_value(entry: bytes, frame: Sequence[Buffer]) -> bytes:
    """The value of an entry of version 1 with batches, which are the buffers of one WAL frame."""
    head = _HEAD.pack(MAGIC, VERSION, 0, sum(map(len, frame)), len(entry), 0, nonce_of(entry))
    return b"".join((head, _CRC.pack(crc32c(head)), *frame, entry))


def decode_value(value: bytes, where: str) -> EntryValue:
    """The parts of a value, which are not checked themselves. StoreDamaged if it is not what it says, and
    StoreTooNew for a later version."""
    if not has_batches(value):
        return EntryValue(value, b"")
    _, version = _BEGIN.unpack_from(value)
    if version != VERSION:
        raise StoreTooNew(f"journal entry {where} has format version {version}; this build reads {VERSION}")
    head = value[: _HEAD.size]
    if len(value) < INLINE_HEAD_BYTES or crc32c(head) != _CRC.unpack_from(value, _HEAD.size)[0]:
        raise StoreDamaged(f"journal entry {where} is damaged (its head does not match its CRC): {REMEDY}")
    _, _, flags, batch_bytes, entry_bytes, *_ = _HEAD.unpack_from(head)
    if flags:
        raise StoreTooNew(f"journal entry {where} has the flags {flags}; this build knows none")
    end = INLINE_HEAD_BYTES + batch_bytes
    if end + entry_bytes != len(value):
        raise StoreDamaged(f"journal entry {where} does not have the length it claims: {REMEDY}")
    return EntryValue(value[end:], value[INLINE_HEAD_BYTES:end])


def has_batches(value: Buffer) -> bool:
    """Whether a value begins as that of an entry with batches, or of a later version."""
    return len(value) >= _BEGIN.size and _is_later(*_BEGIN.unpack_from(value))


def _is_later(magic: bytes, version: int) -> bool:
    return magic == MAGIC and version >= VERSION


def crc_of_frame(frame: EncodedFrame) -> int:
    """The CRC that a WAL frame ends with: of its table and its batches. The locator of the object has it."""
    return int(_CRC.unpack(frame.buffers[-1])[0])


def crc_at_end(frame: Buffer) -> int | None:
    """The same of a frame that was read; None if these bytes are none."""
    if len(frame) < TRAILER_BYTES:
        return None
    return int(_CRC.unpack_from(frame, len(frame) - TRAILER_BYTES)[0])
