"""Snapshots and archives of a journal, as blobs.

Snapshot: `0 4s "DSN1" | 4 u16 version | 6 i64 entries applied | 14 16s nonce of the last entry | 30 32s
digest of the rows (SHA-256) | 62 u64 length of the rows | 70 u32 CRC-32C over [0, 70) and what follows |
74 ... rows`. Version 1, at feature level 1: all rows in one zstd frame; the digest is that of `ledger.rows`.
Version 2: rows in any order, in pieces, each of `u32 length | zstd frame` with whole rows; the digest is over
their bytes in this order.
Archive of entries: `0 4s "DAR1" | 4 u16 version=1 | 6 i64 first entry | 14 u32 count | 18 u64 length of
what follows unpacked | 26 u32 CRC-32C over [0, 26) and what follows | 30 ... one zstd frame of (u32 length,
entry) pairs`.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import cramjam
from crc32c import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.records import LEVEL_WITH_ORIGINS
from ledger.rows import META, Row, digest, pack_rows, unpack_rows
from ledger.types import Buffer

SNAPSHOT_MAGIC = b"DSN1"
ARCHIVE_MAGIC = b"DAR1"
VERSION = 1
VERSION_IN_PIECES = 2
"""Of a snapshot of a ledger at LEVEL_WITH_ORIGINS or later, whose rows have FIRST_ROWS_IN_PIECES or later."""
FIRST_ROWS_IN_PIECES = 4
COMPRESSION_LEVEL = 3
PIECE_BYTES: Final = 1024 * 1024
"""Of rows, after which a piece is compressed."""
ROWS_AT_ONCE: Final = 1_000

_BEGIN = struct.Struct(">4sH")
_SNAPSHOT = struct.Struct(">4sHq16s32sQ")
_ARCHIVE = struct.Struct(">4sHqIQ")
_LENGTH = struct.Struct(">I")
_CRC = struct.Struct(">I")
_VERSION = struct.Struct(">H")
SNAPSHOT_HEAD_BYTES = _SNAPSHOT.size


@dataclass(frozen=True, slots=True)
class Snapshot:
    applied: int
    nonce: bytes
    rows: Iterable[Row]
    """May be iterated more than once."""


def snapshot_prefix(shard: int) -> str:
    return f"snapshot/{shard}/"


def archive_prefix(shard: int) -> str:
    return f"archive/{shard}/"


class SnapshotWriter:
    """A snapshot of version 2 out of rows that come bit by bit, in any order. It holds what is compressed,
    and the rows of one piece."""

    def __init__(self, applied: int, nonce: bytes) -> None:
        self.applied = applied
        self._nonce = nonce
        self._piece = bytearray()
        self._compressed: list[bytes] = []
        self._digest = hashlib.sha256()
        self._length = 0

    @property
    def is_full(self) -> bool:
        """The rows of a piece have been added: compress them."""
        return len(self._piece) >= PIECE_BYTES

    def add(self, rows: Iterable[Row]) -> None:
        self._piece += pack_rows(rows)

    def compress(self) -> None:
        """The rows that were added since the last piece. May run in a thread while nothing is added."""
        piece, self._piece = self._piece, bytearray()
        self._length += len(piece)
        self._digest.update(piece)
        frame = bytes(cramjam.zstd.compress(piece, COMPRESSION_LEVEL))
        self._compressed += [_LENGTH.pack(len(frame)), frame]

    def parts(self) -> list[bytes]:
        """The whole snapshot, once all rows are compressed."""
        assert not self._piece
        digest_ = self._digest.digest()
        head = _SNAPSHOT.pack(
            SNAPSHOT_MAGIC, VERSION_IN_PIECES, self.applied, self._nonce, digest_, self._length
        )
        crc = crc32c(head)
        for part in self._compressed:
            crc = crc32c(part, crc)
        return [head, _CRC.pack(crc), *self._compressed]


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return b"".join(snapshot_parts(snapshot))


def snapshot_parts(snapshot: Snapshot) -> list[bytes]:
    """The bytes of a snapshot, in the version that builds of its feature level read."""
    rows = list(snapshot.rows)
    if not _are_in_pieces(rows):
        return [_encoded_whole(snapshot.applied, snapshot.nonce, rows)]
    writer = SnapshotWriter(snapshot.applied, snapshot.nonce)
    for at in range(0, len(rows), ROWS_AT_ONCE):
        writer.add(rows[at : at + ROWS_AT_ONCE])
        if writer.is_full:
            writer.compress()
    writer.compress()
    return writer.parts()


def is_in_pieces(feature_level: int) -> bool:
    """Builds that know no later level than the first read snapshots of version 1 alone."""
    return feature_level >= LEVEL_WITH_ORIGINS


def _are_in_pieces(rows: Iterable[Row]) -> bool:
    first = next((row.value for row in rows if row.section == META), None)
    return first is not None and _VERSION.unpack_from(first)[0] >= FIRST_ROWS_IN_PIECES


def _encoded_whole(applied: int, nonce: bytes, rows: Sequence[Row]) -> bytes:
    packed = pack_rows(rows)
    return _seal(_SNAPSHOT.pack(SNAPSHOT_MAGIC, VERSION, applied, nonce, digest(rows), len(packed)), packed)


def decode_snapshot(data: bytes, where: str) -> Snapshot:
    """StoreDamaged unless the bytes are those that were written; and, at the end of its rows, unless they
    have the digest that the snapshot claims."""
    what = f"snapshot {where}"
    version, packed = _open(data, _SNAPSHOT, SNAPSHOT_MAGIC, VERSION_IN_PIECES, what)
    _, _, applied, nonce, claimed, length = _SNAPSHOT.unpack_from(data)
    if version == VERSION_IN_PIECES:
        return Snapshot(applied, nonce, RowsInPieces(packed, claimed, length, what))
    rows = list(unpack_rows(memoryview(_unpack(packed, length, what))))
    if digest(rows) != claimed:
        raise _not_of_digest(what)
    return Snapshot(applied, nonce, rows)


class RowsInPieces:
    """The rows of a snapshot, unpacked one piece after the other while they are iterated."""

    def __init__(self, packed: memoryview, claimed: bytes, length: int, what: str) -> None:
        self._packed = packed
        self._claimed = claimed
        self._length = length
        self._what = what

    def __iter__(self) -> Iterator[Row]:
        """StoreDamaged at the end if the rows are not those of the digest."""
        found, length = hashlib.sha256(), 0
        for frame in self._frames():
            piece = _decompressed(frame, self._what)
            length += len(piece)
            found.update(piece)
            yield from unpack_rows(memoryview(piece))
        if length != self._length or found.digest() != self._claimed:
            raise _not_of_digest(self._what)

    def _frames(self) -> Iterator[memoryview]:
        left = self._packed
        while left:
            size = _LENGTH.unpack_from(left)[0] if len(left) >= _LENGTH.size else len(left)
            frame, left = left[_LENGTH.size : _LENGTH.size + size], left[_LENGTH.size + size :]
            if len(frame) != size:
                raise StoreDamaged(f"{self._what} is damaged: a piece of it is cut short")
            yield frame


def _not_of_digest(what: str) -> StoreDamaged:
    return StoreDamaged(f"{what} is damaged: its digest does not match its rows")


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
    _, packed = _open(data, _ARCHIVE, ARCHIVE_MAGIC, VERSION, f"archive {where}")
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


def _open(data: bytes, head: struct.Struct, magic: bytes, newest: int, what: str) -> tuple[int, memoryview]:
    """The version, and what follows the head and its CRC, which are checked."""
    view = memoryview(data)
    packed_from = head.size + _CRC.size
    if len(data) < packed_from:
        raise StoreDamaged(f"{what} is cut short")
    found, version = _BEGIN.unpack_from(data)
    if found != magic:
        raise StoreDamaged(f"{what} does not begin as one")
    if version > newest:
        raise StoreTooNew(f"{what} has format version {version}; this build reads {newest}")
    (crc,) = _CRC.unpack_from(data, head.size)
    if crc != crc32c(view[packed_from:], crc32c(view[: head.size])):
        raise StoreDamaged(f"{what} is damaged: its CRC-32C does not match")
    return version, view[packed_from:]


def _unpack(data: Buffer, length: int, what: str) -> bytes:
    body = _decompressed(data, what)
    if len(body) != length:
        raise StoreDamaged(f"{what} does not have the length it claims")
    return body


def _decompressed(data: Buffer, what: str) -> bytes:
    try:
        return bytes(cramjam.zstd.decompress(data))
    except cramjam.DecompressionError as error:
        raise StoreDamaged(f"{what} cannot be unpacked: {error}") from error
