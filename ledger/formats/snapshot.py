"""Snapshots and archives of a journal, as blobs.

Snapshot: `0 4s "DSN1" | 4 u16 version=1 | 6 i64 entries applied | 14 16s nonce of the last entry | 30 32s
state digest (SHA-256, see ledger.image) | 62 u64 length of the rows | 70 u32 CRC-32C over [0, 70) and what
follows | 74 ... rows, one zstd frame`.
Archive of entries: `0 4s "DAR1" | 4 u16 version=1 | 6 i64 first entry | 14 u32 count | 18 u64 length of
what follows unpacked | 26 u32 CRC-32C over [0, 26) and what follows | 30 ... one zstd frame of (u32 length,
entry) pairs`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import cramjam
from crc32c import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.rows import Row, digest, pack_rows, unpack_rows

SNAPSHOT_MAGIC = b"DSN1"
ARCHIVE_MAGIC = b"DAR1"
VERSION = 1
COMPRESSION_LEVEL = 3

_BEGIN = struct.Struct(">4sH")
_SNAPSHOT = struct.Struct(">4sHq16s32sQ")
_ARCHIVE = struct.Struct(">4sHqIQ")
_LENGTH = struct.Struct(">I")
_CRC = struct.Struct(">I")
SNAPSHOT_HEAD_BYTES = _SNAPSHOT.size


@dataclass(frozen=True, slots=True)
class Snapshot:
    applied: int
    nonce: bytes
    rows: Sequence[Row]


def snapshot_prefix(shard: int) -> str:
    return f"snapshot/{shard}/"


def archive_prefix(shard: int) -> str:
    return f"archive/{shard}/"


def encode_snapshot(snapshot: Snapshot) -> bytes:
    rows = pack_rows(snapshot.rows)
    head = _SNAPSHOT.pack(
        SNAPSHOT_MAGIC, VERSION, snapshot.applied, snapshot.nonce, digest(snapshot.rows), len(rows)
    )
    return _seal(head, rows)


def decode_snapshot(data: bytes, where: str) -> Snapshot:
    """StoreDamaged unless the rows have the digest that the snapshot claims."""
    what = f"snapshot {where}"
    packed = _open(data, _SNAPSHOT.size, SNAPSHOT_MAGIC, what)
    _, _, applied, nonce, claimed, length = _SNAPSHOT.unpack_from(data)
    rows = list(unpack_rows(memoryview(_unpack(packed, length, what))))
    if digest(rows) != claimed:
        raise StoreDamaged(f"{what} is damaged: its digest does not match its rows")
    return Snapshot(applied, nonce, rows)


def snapshot_nonce(head: bytes) -> bytes:
    """Nonce of the last entry, from the first SNAPSHOT_HEAD_BYTES of a snapshot; empty if it is none."""
    if len(head) < SNAPSHOT_HEAD_BYTES or not head.startswith(SNAPSHOT_MAGIC):
        return b""
    return bytes(_SNAPSHOT.unpack_from(head)[3])


def encode_archive(first: int, entries: Sequence[bytes]) -> bytes:
    body = b"".join(_LENGTH.pack(len(entry)) + entry for entry in entries)
    head = _ARCHIVE.pack(ARCHIVE_MAGIC, VERSION, first, len(entries), len(body))
    return _seal(head, body)


def decode_archive(data: bytes, where: str) -> tuple[int, list[bytes]]:
    """(first entry number, entries)."""
    packed = _open(data, _ARCHIVE.size, ARCHIVE_MAGIC, f"archive {where}")
    _, _, first, count, length = _ARCHIVE.unpack_from(data)
    body = _unpack(packed, length, f"archive {where}")
    entries: list[bytes] = []
    pos = 0
    for _ in range(count):
        if pos + _LENGTH.size > len(body):
            raise StoreDamaged(f"archive {where} holds fewer entries than it claims")
        (size,) = _LENGTH.unpack_from(body, pos)
        entries.append(body[pos + _LENGTH.size : pos + _LENGTH.size + size])
        pos += _LENGTH.size + size
    if pos != len(body):
        raise StoreDamaged(f"archive {where} does not have the length it claims")
    return first, entries


def _seal(head: bytes, body: bytes) -> bytes:
    packed = bytes(cramjam.zstd.compress(body, COMPRESSION_LEVEL))
    return b"".join((head, _CRC.pack(crc32c(packed, crc32c(head))), packed))


def _open(data: bytes, head_bytes: int, magic: bytes, what: str) -> bytes:
    """What follows the head and its CRC, which are checked."""
    view = memoryview(data)
    packed_from = head_bytes + _CRC.size
    if len(data) < packed_from:
        raise StoreDamaged(f"{what} is cut short")
    found, version = _BEGIN.unpack_from(data)
    if found != magic:
        raise StoreDamaged(f"{what} does not begin as one")
    if version > VERSION:
        raise StoreTooNew(f"{what} has format version {version}; this build reads {VERSION}")
    (crc,) = _CRC.unpack_from(data, head_bytes)
    if crc != crc32c(view[packed_from:], crc32c(view[:head_bytes])):
        raise StoreDamaged(f"{what} is damaged: its CRC-32C does not match")
    return data[packed_from:]


def _unpack(data: bytes, length: int, what: str) -> bytes:
    try:
        body = bytes(cramjam.zstd.decompress(data))
    except cramjam.DecompressionError as error:
        raise StoreDamaged(f"{what} cannot be unpacked: {error}") from error
    if len(body) != length:
        raise StoreDamaged(f"{what} does not have the length it claims")
    return body
