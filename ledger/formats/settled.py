"""The settled ledger, version 2: where the records of one partition are, for readers without a gateway.

A job writes it from the ledger and never changes it. Offsets are translated to byte ranges of objects by a
search in the `.index` and a walk through one block of the `.log`. Big-endian; a varint has 7 bits a byte, the
lowest first.

| `.log`           | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "DSET"                                                               |
| 4      u16       | version = 2 (version 1 is for stores whose positions are times)            |
| 6      u16       | flags = 0                                                                  |
| 8      16        | topic id                                                                   |
| 24     i32       | partition                                                                  |
| 28     i64       | created, unix ms                                                           |
| 36     i64       | high watermark of the partition when it was written                        |
| 44     u32       | objects                                                                    |
| 48     u32       | bytes of the object table                                                  |
| 52     u32       | CRC-32C of the object table                                                |
| 56     u32       | CRC-32C of [0, 56)                                                         |
| 60 ...           | object table: u8 kind, varint length, locator, for each object             |
| then             | blocks                                                                     |
| -16    u32       | blocks                                                                     |
| -12    i64       | runs                                                                       |
| -4     u32       | CRC-32C of the 12 bytes before, and of the checkpoints of all blocks       |

| block            | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | checkpoint: magic "DSCP"                                                   |
| 4      i64       | first offset                                                               |
| 12     u32       | runs                                                                       |
| 16     u32       | bytes of the runs                                                          |
| 20     u32       | CRC-32C of [0, 20) and of the runs                                         |
| 24 ...           | for each run: varint offset delta (from the offset that follows the run    |
|                  | before; 0 but after a gap), varint records - 1 (last offset - base offset),|
|                  | varint object (its place in the table), varint start, varint size          |

| `.index`         | field                                                                      |
|------------------|----------------------------------------------------------------------------|
| 0      4         | magic "DSIX"                                                               |
| 4      u16       | version = 2                                                                |
| 6      u16       | flags = 0                                                                  |
| 8      u32       | entries                                                                    |
| 12     i64       | bytes of the `.log`                                                        |
| 20     u32       | CRC-32C of [0, 20) and of the entries                                      |
| 24 ... 16 each   | i64 first offset, i64 file position of a block                             |

A run is bytes [start, start + size) of its object, batches back to back. In a segment batches carry their own
offsets; in any other object the first one has the run's base offset, whatever it carries itself, and each
goes on where the one before ends. The end of a transaction is in no object, and its offset is in a gap, until
a merge has put it into a segment. Records of aborted transactions are named as all others.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from ledger.types import TOPIC_ID_BYTES, Buffer, TopicId

VERSION: Final = 2
BLOCK_RUNS: Final = 256
MAX_OBJECTS: Final = 2**24
"""Of one file: a writer holds the locators of all of them in memory."""

MAGIC: Final = b"DSET"
CHECKPOINT_MAGIC: Final = b"DSCP"
INDEX_MAGIC: Final = b"DSIX"
CRC = struct.Struct(">I")
_BEGIN = struct.Struct(">4sH")
HEAD = struct.Struct(f">4sHH{TOPIC_ID_BYTES}siqqIII")
CHECKPOINT = struct.Struct(">4sqII")
END = struct.Struct(">Iq")
INDEX_HEAD = struct.Struct(">4sHHIq")
ENTRY = struct.Struct(">qq")
HEAD_BYTES: Final = HEAD.size + CRC.size
CHECKPOINT_BYTES: Final = CHECKPOINT.size + CRC.size
TRAILER_BYTES: Final = END.size + CRC.size
INDEX_HEAD_BYTES: Final = INDEX_HEAD.size + CRC.size
ENTRY_BYTES: Final = ENTRY.size


def version_of(head: Buffer) -> int | None:
    """The format version that the first 6 bytes of a `.log` say; None if it does not begin as one."""
    if len(head) < _BEGIN.size:
        return None
    magic, version = _BEGIN.unpack_from(head)
    return version if magic == MAGIC else None


class SettledRun(NamedTuple):
    """Offsets [base, last] are bytes [start, start + size) of the object. `kind` is an `ObjectKind`."""

    locator: str
    kind: int
    start: int
    size: int
    base: int
    last: int


class SettledPartition(NamedTuple):
    """Which partition it is of, when it was written, and what the high watermark was."""

    topic_id: TopicId
    partition: int
    created_ms: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class SettledBytes:
    """A settled ledger to write: `log` in this order, `log_bytes` in all, and `index`."""

    log: Sequence[Buffer]
    log_bytes: int
    index: bytes
    runs: int
    objects: int


class SettledObject(NamedTuple):
    """An entry of the object table."""

    locator: str
    kind: int


def encode_settled(
    about: SettledPartition, runs: Iterable[SettledRun], block_runs: int = BLOCK_RUNS
) -> SettledBytes:
    """Both files of the runs of a partition, which ascend. Holds what it writes, and no run longer.
    ValueError for runs that do not ascend or reach above the high watermark, for an empty one, and for too
    many objects."""
    writer = _Writer(about, block_runs)
    for run in runs:
        writer.add(run)
    return writer.ended()


class _Writer:
    def __init__(self, about: SettledPartition, block_runs: int) -> None:
        self._about = about
        self._block_runs = block_runs
        self._numbers: dict[SettledObject, int] = {}
        self._blocks: list[bytes] = []
        self._offsets: list[int] = []
        self._next = 0
        self._first = 0
        self._block = bytearray()
        self._in_block = 0
        self._runs = 0
        self._crc = 0

    def add(self, run: SettledRun) -> None:
        if not self._next <= run.base <= run.last < self._about.high_watermark:
            raise ValueError(f"offsets {run.base} to {run.last} cannot follow {self._next - 1}")
        if run.start < 0 or run.size < 1:
            raise ValueError(f"a run of {run.size} bytes at {run.start}")
        if not self._in_block:
            self._first = self._next = run.base
        number = self._numbers.setdefault(SettledObject(run.locator, run.kind), len(self._numbers))
        if number == MAX_OBJECTS:
            raise ValueError(f"more than {MAX_OBJECTS:,} objects: merge the partition first")
        for value in (run.base - self._next, run.last - run.base, number, run.start, run.size):
            _put_varint(self._block, value)
        self._next = run.last + 1
        self._in_block += 1
        if self._in_block == self._block_runs:
            self._end_block()

    def _end_block(self) -> None:
        if not self._in_block:
            return
        head = CHECKPOINT.pack(CHECKPOINT_MAGIC, self._first, self._in_block, len(self._block))
        checkpoint = head + CRC.pack(crc32c(self._block, crc32c(head)))
        self._crc = crc32c(checkpoint, self._crc)
        self._blocks.append(checkpoint + self._block)
        self._offsets.append(self._first)
        self._runs += self._in_block
        self._block, self._in_block = bytearray(), 0

    def ended(self) -> SettledBytes:
        self._end_block()
        table = bytearray()
        for locator, kind in self._numbers:
            encoded = locator.encode()
            table.append(kind)
            _put_varint(table, len(encoded))
            table += encoded
        head = HEAD.pack(MAGIC, VERSION, 0, *self._about, len(self._numbers), len(table), crc32c(table))
        head += CRC.pack(crc32c(head))
        end = END.pack(len(self._blocks), self._runs)
        trailer = end + CRC.pack(crc32c(end, self._crc))
        log: list[Buffer] = [head, table, *self._blocks, trailer]
        log_bytes = sum(map(len, log))
        return SettledBytes(
            log, log_bytes, self._index(len(head) + len(table), log_bytes), self._runs, len(self._numbers)
        )

    def _index(self, position: int, log_bytes: int) -> bytes:
        entries = bytearray()
        for offset, block in zip(self._offsets, self._blocks, strict=True):
            entries += ENTRY.pack(offset, position)
            position += len(block)
        head = INDEX_HEAD.pack(INDEX_MAGIC, VERSION, 0, len(self._offsets), log_bytes)
        return head + CRC.pack(crc32c(entries, crc32c(head))) + entries


def _put_varint(target: bytearray, value: int) -> None:
    while value >= 0x80:
        target.append(value & 0x7F | 0x80)
        value >>= 7
    target.append(value)
