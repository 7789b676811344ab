"""Metadata records as bytes: the typed lines of a journal entry.

Each is framed as `u8 type | u8 version | u32 length | body` (big-endian). The records themselves, their types
and their bodies are with the feature that they concern, in its module `records`.

The *feature level* of a journal says which types and versions may be in it, so that no build meets one that
it cannot read before an operator has allowed it. Level 1 is the first format, level 2 the second, and level 3
adds segments. Level 4 adds what jobs write besides: settled ledgers. Level 5 adds batches inside of entries,
and level 6 transactions.
"""

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.types import Buffer

FRAME = struct.Struct(">BBI")

MAX_RECORDS_BYTES = 512 * 1024 - 40
"""Of all records of one journal entry; with its head it has 512 KiB at most."""

FIRST_LEVEL: Final = 1
NEWEST_LEVEL: Final = 6
"""The newest feature level that this build reads and writes; a new journal begins with it."""

LEVEL_WITH_ORIGINS: Final = 2
"""Commits say the kind, store, age and uploader of an object, and rows have object numbers of 64 bits."""
LEVEL_WITH_SEGMENTS: Final = 3
"""Segments take the place of runs, and jobs have pins."""
LEVEL_WITH_SETTLED: Final = 4
"""The journal names the newest settled ledger of each partition."""
LEVEL_WITH_ADOPTED: Final = 4
"""Topics have segments in buckets of others."""
LEVEL_WITH_PLACED: Final = 5
"""Batches are made durable together with the entry that numbers them."""
LEVEL_WITH_TRANSACTIONS: Final = 6
"""Producers have transactional ids, and partitions have markers."""

RESERVED: Final[Mapping[range, str]] = {
    range(31, 34): "swaps of segments",
    range(46, 48): "transactions",
    range(48, 50): "transaction markers without an object",
    range(50, 54): "ACLs",
    range(54, 58): "credentials",
    range(58, 62): "share groups",
    range(63, 64): "objects inside of entries",
    range(64, 68): "membership of gateways",
}
"""Type numbers that are kept for what later versions write. No build writes them yet."""

MetadataRecord: TypeAlias = object
"""A record of one of the features."""

Made = TypeVar("Made")


class RecordFormat(NamedTuple):
    """The bytes of one kind of record. A type number is never given twice, also not by later versions."""

    number: int
    kind: type
    encode: Callable[[Any], bytes]
    """The body of a record."""
    decode: Callable[[memoryview], MetadataRecord]
    version: int = 0
    level: int = FIRST_LEVEL
    """The feature level from which on this version is written."""
    older: "RecordFormat | None" = None
    """The version before, which is written at lower levels and read at all of them."""
    decoding: Callable[[memoryview], Generator[int, None, MetadataRecord]] | None = None
    """As `decode`, in steps, where one record may take long; yields the weight of each step."""

    def framed(self, record: MetadataRecord, level: int = FIRST_LEVEL) -> bytes:
        """The record in the newest version that this feature level allows. ValueError if there is none."""
        if self.level > level:
            if self.older is None:
                raise ValueError(f"record type {self.number} is not written at feature level {level}")
            return self.older.framed(record, level)
        body = self.encode(record)
        return FRAME.pack(self.number, self.version, len(body)) + body

    def of_version(self, version: int) -> "RecordFormat | None":
        """This format as it was in a version, None if there was none such."""
        if version == self.version:
            return self
        return None if self.older is None else self.older.of_version(version)


def at_once(steps: Generator[int, None, Made]) -> Made:
    """What a generator of steps returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: Made = end.value
            return made


def decode_records(data: Buffer, count: int, formats: Mapping[int, RecordFormat]) -> Iterator[MetadataRecord]:
    """The `count` records that fill `data`. StoreTooNew for an unknown type or version, StoreDamaged for
    lengths that do not add up. `formats`: by type number."""
    try:
        for known, body in _framed(data, count, formats):
            yield known.decode(body)
    except (struct.error, UnicodeDecodeError) as error:
        raise StoreDamaged(f"a metadata record cannot be read: {error}") from error


def decoding_records(
    data: Buffer, count: int, formats: Mapping[int, RecordFormat]
) -> Generator[int, None, list[MetadataRecord]]:
    """The same in steps; yields the weight of each step of a record that may take long."""
    records = list[MetadataRecord]()
    try:
        for known, body in _framed(data, count, formats):
            records.append(
                known.decode(body) if known.decoding is None else (yield from known.decoding(body))
            )
    except (struct.error, UnicodeDecodeError) as error:
        raise StoreDamaged(f"a metadata record cannot be read: {error}") from error
    return records


def _framed(
    data: Buffer, count: int, formats: Mapping[int, RecordFormat]
) -> Iterator[tuple[RecordFormat, memoryview]]:
    """The format and the body of each record."""
    view = memoryview(data)
    pos, end = 0, len(view)
    for _ in range(count):
        number, version, size = FRAME.unpack_from(view, pos)
        pos += FRAME.size
        begin, pos = pos, pos + size
        if pos > end:
            raise StoreDamaged("a metadata record runs past the end of its journal entry")
        yield _format_of(number, version, formats), view[begin:pos]
    if pos != end:
        raise StoreDamaged("a journal entry has bytes after its last metadata record")


def _format_of(number: int, version: int, formats: Mapping[int, RecordFormat]) -> RecordFormat:
    known = formats.get(number)
    found = None if known is None else known.of_version(version)
    if found is None:
        purpose = next((f" ({what})" for numbers, what in RESERVED.items() if number in numbers), "")
        raise StoreTooNew(
            f"the journal holds metadata record type {number}{purpose} version {version}, which this build "
            "does not know: run the version of Dragoman that wrote it, or a newer one"
        )
    return found
