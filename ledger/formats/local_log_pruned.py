"""What a local log knows of its pruned entries: `start`, and the few that stay (big-endian).

| bytes        | field                                                                               |
|--------------|-------------------------------------------------------------------------------------|
| 0      4     | magic "DLPR"                                                                        |
| 4      u16   | version = 1                                                                         |
| 6      u16   | flags = 0                                                                           |
| 8      i64   | start: entries below may be missing                                                 |
| 16     i64   | settled: of the entries below, those that stay are here, and no file of the log has |
|              | to be kept for one                                                                  |
| 24     u32   | entries that stay                                                                   |
| 28 ...       | for each: i64 number, u32 bytes, the entry (`ledger/journal.py`), by number         |
| -4     u32   | CRC-32C of all before it                                                            |

The first entry of every epoch stays for ever, and must not keep a whole file of the log for it. The file is
replaced as a whole.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.journal import REMEDY
from ledger.types import Buffer

MAGIC: Final = b"DLPR"
VERSION: Final = 1

_HEAD = struct.Struct(">4sHHqqI")
_ENTRY = struct.Struct(">qI")
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Pruned:
    """`kept`: entries below `settled` that stay, by number."""

    start: int = 0
    settled: int = 0
    kept: Mapping[int, bytes] = field(default_factory=dict)


def encode_pruned(pruned: Pruned) -> bytes:
    """The whole file."""
    parts = [_HEAD.pack(MAGIC, VERSION, 0, pruned.start, pruned.settled, len(pruned.kept))]
    for number, entry in sorted(pruned.kept.items()):
        parts += [_ENTRY.pack(number, len(entry)), entry]
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def decode_pruned(data: Buffer, where: str) -> Pruned:
    """StoreDamaged if these bytes are no such file, StoreTooNew for a later version."""
    view = memoryview(data)
    damaged = StoreDamaged(f"{where}, which has the start of the journal, is damaged; {REMEDY}")
    if len(view) < _HEAD.size + _CRC.size:
        raise damaged
    if crc32c(view[: -_CRC.size]) != _CRC.unpack_from(view, len(view) - _CRC.size)[0]:
        raise damaged
    magic, version, flags, start, settled, count = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise damaged
    if (version, flags) != (VERSION, 0):
        raise StoreTooNew(f"{where} has format version {version}; this build reads {VERSION}")
    kept: dict[int, bytes] = {}
    at = _HEAD.size
    for _ in range(count):
        number, size = _ENTRY.unpack_from(view, at)
        at += _ENTRY.size
        kept[number] = bytes(view[at : at + size])
        at += size
    if at != len(view) - _CRC.size:
        raise damaged
    return Pruned(start, settled, kept)
