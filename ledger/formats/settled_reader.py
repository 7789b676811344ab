"""Reading a settled ledger: part by part, for one offset, or all of it with every byte checked (sans-I/O).

`ledger/formats/settled.py` has the format. A reader that has neither file in memory reads the header, the
object table and the index once, and then a block for each offset.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.settled import (
    CHECKPOINT,
    CHECKPOINT_BYTES,
    CHECKPOINT_MAGIC,
    CRC,
    END,
    ENTRY,
    ENTRY_BYTES,
    HEAD,
    HEAD_BYTES,
    INDEX_HEAD,
    INDEX_HEAD_BYTES,
    INDEX_MAGIC,
    MAGIC,
    TRAILER_BYTES,
    VERSION,
    SettledObject,
    SettledPartition,
    SettledRun,
)
from ledger.types import Buffer

_MAX_OFFSET: Final = 2**63 - 1
_MAX_VARINT_BYTES: Final = 9
_NUMBERS_A_RUN: Final = 5


class SettledHead(NamedTuple):
    """The header of a `.log`. The first block, or the trailer, is at `blocks_at`."""

    partition: SettledPartition
    objects: int
    table_bytes: int
    table_crc: int

    @property
    def blocks_at(self) -> int:
        return HEAD_BYTES + self.table_bytes


class IndexEntry(NamedTuple):
    """The block whose first run has the base offset `offset` is at `position` of the `.log`."""

    offset: int
    position: int


class SettledIndex(NamedTuple):
    """An `.index`; its entries ascend by offset and position."""

    log_bytes: int
    entries: Sequence[IndexEntry]

    def block_of(self, offset: int) -> tuple[int, int] | None:
        """Start and size of the block that holds `offset`, if a run does, or the run before it. None if
        `offset` is before the first run, or there is none."""
        at = bisect_right(self.entries, offset, key=_offset) - 1
        return None if at < 0 else self.block(at)

    def block(self, at: int) -> tuple[int, int]:
        """Start and size of a block."""
        start = self.entries[at].position
        end = self.entries[at + 1].position if at + 1 < len(self.entries) else self.log_bytes - TRAILER_BYTES
        return start, end - start


def read_head(data: Buffer, where: str) -> SettledHead:
    """The header, from the first HEAD_BYTES of a `.log`. StoreDamaged, StoreTooNew."""
    if len(data) < HEAD_BYTES:
        raise _damaged(where, f"{len(data)} bytes are too few for a header")
    magic, version, flags, *about, objects, table_bytes, table_crc = HEAD.unpack_from(data)
    _check_begin(where, magic == MAGIC, version)
    if flags or crc32c(memoryview(data)[: HEAD.size]) != CRC.unpack_from(data, HEAD.size)[0]:
        raise _damaged(where, "its header does not match its CRC")
    return SettledHead(SettledPartition(*about), objects, table_bytes, table_crc)


def read_table(data: Buffer, head: SettledHead, where: str) -> list[SettledObject]:
    """The object table, from its bytes alone: [HEAD_BYTES, `blocks_at`). StoreDamaged."""
    view = memoryview(data)
    if len(view) != head.table_bytes or crc32c(view) != head.table_crc:
        raise _damaged(where, "its object table does not match its CRC")
    found: list[SettledObject] = []
    at = 0
    for _ in range(head.objects):
        size, begin = _varint(view, at + 1, where)
        at, kind = begin + size, view[at]
        if at > len(view):
            break
        found.append(SettledObject(_text(view[begin:at], where), kind))
    if at != len(view) or len(found) != head.objects:
        raise _damaged(where, f"its object table does not have {head.objects} objects")
    return found


def read_index(data: Buffer, where: str) -> SettledIndex:
    """The whole `.index`. StoreDamaged, StoreTooNew."""
    if len(data) < INDEX_HEAD_BYTES:
        raise _damaged(where, f"{len(data)} bytes are too few for the header of an index")
    view = memoryview(data)
    magic, version, flags, count, log_bytes = INDEX_HEAD.unpack_from(view)
    _check_begin(where, magic == INDEX_MAGIC, version)
    rows = view[INDEX_HEAD_BYTES:]
    (crc,) = CRC.unpack_from(view, INDEX_HEAD.size)
    if flags or len(rows) != count * ENTRY_BYTES or crc32c(rows, crc32c(view[: INDEX_HEAD.size])) != crc:
        raise _damaged(where, "it does not match its CRC, or is cut short")
    entries = [IndexEntry._make(row) for row in ENTRY.iter_unpack(rows)]
    ascends = all(
        entry.offset > before.offset and entry.position > before.position + CHECKPOINT_BYTES
        for before, entry in pairwise(entries)
    )
    end = log_bytes - TRAILER_BYTES
    if not ascends or (entries and not HEAD_BYTES <= entries[0].position <= entries[-1].position < end):
        raise _damaged(where, "its entries do not ascend within the file")
    return SettledIndex(log_bytes, entries)


def read_block(data: Buffer, table: Sequence[SettledObject], where: str) -> list[SettledRun]:
    """The runs of one block, from exactly its bytes. StoreDamaged."""
    view = memoryview(data)
    first, count, size = _checkpoint(view, where)
    if CHECKPOINT_BYTES + size != len(view):
        raise _damaged(where, "a block does not have the length that its checkpoint says")
    found: list[SettledRun] = []
    at, offset = CHECKPOINT_BYTES, first
    for _ in range(count):
        values: list[int] = []
        for _ in range(_NUMBERS_A_RUN):
            value, at = _varint(view, at, where)
            values.append(value)
        delta, more, number, start, run_bytes = values
        base = offset + delta
        if number >= len(table) or not run_bytes or base + more > _MAX_OFFSET:
            raise _damaged(where, f"the block of offset {first} names what is not there")
        found.append(SettledRun(*table[number], start, run_bytes, base, base + more))
        offset = base + more + 1
    if at != len(view) or not found:
        raise _damaged(where, f"the block of offset {first} does not have {count} runs")
    return found


def find_run(runs: Sequence[SettledRun], offset: int) -> SettledRun | None:
    """The run of a block that holds `offset`; None where it is in a gap."""
    at = bisect_right(runs, offset, key=_base) - 1
    return runs[at] if at >= 0 and offset <= runs[at].last else None


def translate(log: Buffer, index: Buffer, offset: int, where: str) -> SettledRun | None:
    """Where the record of this offset is, by both whole files; None if it is nowhere. Reads header, object
    table and one block. StoreDamaged, StoreTooNew."""
    view = memoryview(log)
    head = read_head(view, where)
    table = read_table(view[HEAD_BYTES : head.blocks_at], head, where)
    place = read_index(index, f"the index of {where}").block_of(offset)
    if place is None:
        return None
    start, size = place
    return find_run(read_block(view[start : start + size], table, where), offset)


def verify_settled(log: Buffer, index: Buffer, where: str) -> Iterator[SettledRun]:
    """Every run of two whole files, a block at a time, each byte checked, also one file against the other.
    StoreDamaged names what is wrong, at the latest after the last run; StoreTooNew."""
    view = memoryview(log)
    head, known = read_head(view, where), read_index(index, f"the index of {where}")
    table = read_table(view[HEAD_BYTES : head.blocks_at], head, where)
    if known.log_bytes != len(view) or len(view) < head.blocks_at + TRAILER_BYTES:
        raise _damaged(where, f"it has {len(view)} bytes, and its index says {known.log_bytes}")
    position, following, runs, crc = head.blocks_at, 0, 0, 0
    for at, entry in enumerate(known.entries):
        start, size = known.block(at)
        block = read_block(view[start : start + size], table, where)
        if start != position or block[0].base != entry.offset or block[0].base < following:
            raise _damaged(where, f"the block at {start} is not the one of its index entry")
        yield from block
        crc = crc32c(view[start : start + CHECKPOINT_BYTES], crc)
        position, following, runs = start + size, block[-1].last + 1, runs + len(block)
    end = view[position:]
    expected = END.pack(len(known.entries), runs)
    if bytes(end) != expected + CRC.pack(crc32c(expected, crc)):
        raise _damaged(where, "its trailer does not say what its blocks have")
    if following > head.partition.high_watermark:
        raise _damaged(where, f"it has offsets above its high watermark {head.partition.high_watermark}")


def _checkpoint(view: memoryview, where: str) -> tuple[int, int, int]:
    """First offset, runs, and their bytes."""
    if len(view) < CHECKPOINT_BYTES:
        raise _damaged(where, f"{len(view)} bytes are too few for a checkpoint")
    magic, first, count, size = CHECKPOINT.unpack_from(view)
    crc = crc32c(view[CHECKPOINT_BYTES:], crc32c(view[: CHECKPOINT.size]))
    if magic != CHECKPOINT_MAGIC or crc != CRC.unpack_from(view, CHECKPOINT.size)[0]:
        raise _damaged(where, "a block does not match its CRC")
    return first, count, size


def _varint(view: memoryview, at: int, where: str) -> tuple[int, int]:
    """The value, and where it ends."""
    value = 0
    for place, byte in enumerate(view[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _damaged(where, f"no number ends at byte {at}")


def _text(data: memoryview, where: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise _damaged(where, "a locator is no UTF-8") from None


def _check_begin(where: str, is_magic: bool, version: int) -> None:
    if not is_magic:
        raise _damaged(where, "it does not begin as one")
    if version > VERSION:
        raise StoreTooNew(f"{where} has format version {version}; this build reads {VERSION}")
    if version != VERSION:
        raise _damaged(where, f"version {version} is not written here")


def _damaged(where: str, reason: str) -> StoreDamaged:
    return StoreDamaged(f"{where} is damaged: {reason}")


def _offset(entry: IndexEntry) -> int:
    return entry.offset


def _base(run: SettledRun) -> int:
    return run.base
