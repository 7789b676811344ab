"""Metadata records as bytes: the typed lines of a journal entry.

Each is framed as `u8 type | u8 version | u32 length | body` (big-endian). The records themselves, their types
and their bodies are with the feature that they concern, in its module `records`.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.types import Buffer

FRAME = struct.Struct(">BBI")

MAX_RECORDS_BYTES = 512 * 1024 - 40
"""Of all records of one journal entry; with its head it has 512 KiB at most."""

MetadataRecord: TypeAlias = object
"""A record of one of the features."""


class RecordFormat(NamedTuple):
    """The bytes of one kind of record. A type number is never given twice, also not by later versions."""

    number: int
    kind: type
    encode: Callable[[Any], bytes]
    """The body of a record."""
    decode: Callable[[memoryview], MetadataRecord]
    version: int = 0
    """The newest that is read, and the one that is written."""

    def framed(self, record: MetadataRecord) -> bytes:
        body = self.encode(record)
        return FRAME.pack(self.number, self.version, len(body)) + body


def decode_records(data: Buffer, count: int, formats: Mapping[int, RecordFormat]) -> Iterator[MetadataRecord]:
    """The `count` records that fill `data`. StoreTooNew for an unknown type or version, StoreDamaged for
    lengths that do not add up. `formats`: by type number."""
    view = memoryview(data)
    pos, end = 0, len(view)
    try:
        for _ in range(count):
            number, version, size = FRAME.unpack_from(view, pos)
            pos += FRAME.size
            begin, pos = pos, pos + size
            if pos > end:
                raise StoreDamaged("a metadata record runs past the end of its journal entry")
            yield _decode_one(number, version, view[begin:pos], formats)
    except (struct.error, UnicodeDecodeError) as error:
        raise StoreDamaged(f"a metadata record cannot be read: {error}") from error
    if pos != end:
        raise StoreDamaged("a journal entry has bytes after its last metadata record")


def _decode_one(
    number: int, version: int, body: memoryview, formats: Mapping[int, RecordFormat]
) -> MetadataRecord:
    found = formats.get(number)
    if found is None or version > found.version:
        raise StoreTooNew(
            f"the journal holds metadata record type {number} version {version}, which this build does not "
            "know: run the version of Dragoman that wrote it, or a newer one"
        )
    return found.decode(body)
