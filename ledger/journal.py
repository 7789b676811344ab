"""Journal entries: keys, and bytes.

Entry N of a shard lies at `journal/<shard>/<N:020d>`:
`0 4s "DJE1" | 4 u16 version=1 | 6 u16 record count | 8 i32 epoch | 12 i64 time (unix ms) | 20 16s nonce |
36 u32 CRC-32C over [0, 36) and the records | 40 ... records`.
The nonce tells an owner whether an entry found after an unknown outcome is its own.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.records import MetadataRecord, decode_records
from ledger.types import Buffer

MAGIC = b"DJE1"
VERSION = 1
NONCE_BYTES = 16
MAX_ENTRY_BYTES = 512 * 1024
GROUP_COMMIT_BATCHES = 1_000
"""So many may share an entry: they are decided, encoded and applied in one go, for which an event loop stands
still for some milliseconds. A larger draft, of up to `ledger.draft_batches`, has an entry of its own."""

_HEAD = struct.Struct(">4sHHiq16s")
_CRC = struct.Struct(">I")
REMEDY = "restore the metadata store from a backup, or name another (--metadata, --data-dir)"
HEAD_BYTES = _HEAD.size + _CRC.size


def entry_key(shard: int, number: int) -> str:
    return f"journal/{shard}/{number:020d}"


def entry_prefix(shard: int) -> str:
    return f"journal/{shard}/"


def start_key(shard: int) -> str:
    """Kept outside the prefix of the entries, so that a scan of entries never meets it."""
    return f"journal-start/{shard}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One decoded journal entry."""

    epoch: int
    time_ms: int
    nonce: bytes
    records: Sequence[MetadataRecord]


def encode_entry(epoch: int, time_ms: int, nonce: bytes, records: Sequence[bytes]) -> bytes:
    """The bytes of an entry of framed records."""
    head = _HEAD.pack(MAGIC, VERSION, len(records), epoch, time_ms, nonce)
    body = b"".join(records)
    return b"".join((head, _CRC.pack(crc32c.crc32c(body, crc32c.crc32c(head))), body))


def nonce_of(data: Buffer) -> bytes:
    """The nonce alone, for the owner that asks whether an entry is its own."""
    if len(data) < HEAD_BYTES:
        return b""
    return bytes(_HEAD.unpack_from(data)[5])


def decode_entry(data: Buffer, where: str) -> Entry:
    """Parse and check an entry. `where` (its key) is named in errors."""
    if len(data) < HEAD_BYTES:
        raise StoreDamaged(f"journal entry {where} is cut short at {len(data)} bytes: {REMEDY}")
    magic, version, count, epoch, time_ms, nonce = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise StoreDamaged(f"journal entry {where} does not begin as one: {REMEDY}")
    if version > VERSION:
        raise StoreTooNew(f"journal entry {where} has format version {version}; this build reads {VERSION}")
    view = memoryview(data)
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    if crc != crc32c.crc32c(view[HEAD_BYTES:], crc32c.crc32c(view[: _HEAD.size])):
        raise StoreDamaged(f"journal entry {where} is damaged (its CRC-32C does not match): {REMEDY}")
    return Entry(epoch, time_ms, nonce, list(decode_records(view[HEAD_BYTES:], count)))
