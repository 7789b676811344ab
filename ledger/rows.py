"""Image rows: (section, key, value), with a checksum for each, and many of them as bytes or as one digest.

From format version 3 on every value ends with a u32 CRC-32C, begun with the number of the section, over the
key and the value before it: rows are believed at every start, and snapshots are made of them.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from ledger.errors import StoreDamaged
from ledger.types import Buffer

META = 0
"""The section of the first row, which `ledger/image.py` writes."""

_CRC = struct.Struct(">I")
ROW_HEAD = struct.Struct(">BHI")


class Row(NamedTuple):
    """`value` None: the row is gone."""

    section: int
    key: bytes
    value: bytes | None


def sealed(section: int, key: bytes, body: bytes | None) -> Row:
    """The row with its CRC-32C after the body; None stays None."""
    return Row(section, key, body + _CRC.pack(_crc(section, key, body)) if body is not None else None)


def opened(section: int, key: bytes, value: bytes) -> bytes:
    """The body of a sealed value. StoreDamaged if it does not match its checksum."""
    ((_, body),) = all_opened(section, [(key, value)])
    return body


def all_opened(section: int, pairs: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Keys and bodies of the sealed values of one section. StoreDamaged if one does not match its
    checksum."""
    bodies: list[tuple[bytes, bytes]] = []
    pack, size = _CRC.pack, -_CRC.size
    for key, value in pairs:
        body = value[:size]
        if value[size:] != pack(crc32c(body, crc32c(key, section))):
            raise StoreDamaged(f"row {key.hex()} of section {section} of an image does not match its CRC-32C")
        bodies.append((key, body))
    return bodies


def _crc(section: int, key: bytes, body: Buffer) -> int:
    return int(crc32c(body, crc32c(key, section)))


def digest(rows: Iterable[Row]) -> bytes:
    """SHA-256 over the rows in order of section and key."""
    total = hashlib.sha256()
    for section, key, value in sorted(rows):
        total.update(struct.pack(">BHI", section, len(key), len(value or b"")) + key + (value or b""))
    return total.digest()


def pack_rows(rows: Iterable[Row]) -> bytes:
    """Rows back to back: `u8 section | u16 key length | u32 value length | key | value`."""
    return b"".join(
        ROW_HEAD.pack(section, len(key), len(value or b"")) + key + (value or b"")
        for section, key, value in rows
    )


def unpack_rows(data: memoryview) -> Iterator[Row]:
    """The reverse of `pack_rows`. StoreDamaged if the lengths do not add up."""
    pos, size, head_bytes, head = 0, len(data), ROW_HEAD.size, ROW_HEAD.unpack_from
    # A million of them at a start: this takes half as long as the constructor of the tuple.
    new = tuple.__new__
    while pos < size:
        if pos + head_bytes > size:
            raise StoreDamaged("the rows of a snapshot are cut short")
        section, key_bytes, value_bytes = head(data, pos)
        pos += head_bytes
        split = pos + key_bytes
        end = split + value_bytes
        if end > size:
            raise StoreDamaged("a row of a snapshot is cut short")
        yield new(Row, (section, bytes(data[pos:split]), bytes(data[split:end])))
        pos = end
