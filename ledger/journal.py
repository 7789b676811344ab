"""Journal entries: their bytes, and what applying one does.

`0 4s "DJE1" | 4 u16 version=1 | 6 u16 record count | 8 i32 epoch | 12 i64 time (unix ms) | 20 16s nonce |
36 u32 CRC-32C over [0, 36) and the records | 40 ... records`.
By the nonce an owner knows an entry as its own that it finds after an unknown outcome.
"""

import struct
from collections.abc import Generator, Sequence

import crc32c
import msgspec

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.partitions.state import PartitionLog
from ledger.records import MAX_RECORDS_BYTES, MetadataRecord
from ledger.registry import REGISTRY, Registry
from ledger.state import LedgerState
from ledger.topics.apply import let_go
from ledger.types import Buffer

MAGIC = b"DJE1"
VERSION = 1
NONCE_BYTES = 16
GROUP_COMMIT_BATCHES = 1_000
"""At most that many share an entry: they are decided and encoded in one iteration of the event loop, and
applied in another, which takes some milliseconds. A larger draft, of up to `ledger.draft_batches`, has an
entry of its own."""
FAR_COMMIT_BATCHES = 3_000
"""The same where an append takes tens of milliseconds, so that few entries carry many batches."""

_HEAD = struct.Struct(">4sHHiq16s")
_CRC = struct.Struct(">I")
REMEDY = "restore the metadata store from a backup, or name another (--metadata, --data-dir)"
HEAD_BYTES = _HEAD.size + _CRC.size
MAX_ENTRY_BYTES = HEAD_BYTES + MAX_RECORDS_BYTES


class Entry(msgspec.Struct, frozen=True):
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
    """The nonce alone, for an owner that checks whether an entry is its own."""
    if len(data) < HEAD_BYTES:
        return b""
    return bytes(_HEAD.unpack_from(data)[5])


def decode_entry(data: Buffer, where: str, registry: Registry = REGISTRY) -> Entry:
    """Parse and check an entry. `where` it is, is named in errors."""
    count, epoch, time_ms, nonce = _checked_head(data, where)
    return Entry(epoch, time_ms, nonce, list(registry.decode_records(memoryview(data)[HEAD_BYTES:], count)))


def decoding_entry(data: Buffer, where: str, registry: Registry = REGISTRY) -> Generator[int, None, Entry]:
    """The same in steps; yields the weight of each step of a record that may take long."""
    count, epoch, time_ms, nonce = _checked_head(data, where)
    records = yield from registry.decoding_records(memoryview(data)[HEAD_BYTES:], count)
    return Entry(epoch, time_ms, nonce, records)


def _checked_head(data: Buffer, where: str) -> tuple[int, int, int, bytes]:
    """Number of records, epoch, time and nonce."""
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
    return count, epoch, time_ms, nonce


def apply_entry(state: LedgerState, entry: Entry, registry: Registry = REGISTRY) -> list[PartitionLog]:
    """Apply a durable entry. Returns the partitions whose offsets moved or that were deleted, without blank
    ones, of which no subscriber can know."""
    touched = begin_entry(state, entry, registry)
    while state.leaving:
        touched += go_on(state)
    return touched


def begin_entry(state: LedgerState, entry: Entry, registry: Registry = REGISTRY) -> list[PartitionLog]:
    """The same in slices: while `state.leaving` has partitions of deleted topics, `go_on` must be called
    before anything else is applied or decided. RuntimeError for a state of which an entry was applied in
    part: applied again, a part of it would count twice."""
    _check_whole(state)
    state.is_whole = False
    state.touched = {}
    state.entry_time_ms = entry.time_ms
    appliers = registry.appliers
    for record in entry.records:
        appliers[type(record)](state, record)
    if state.leaving:
        let_go(state)
    state.applied += 1
    state.is_whole = True
    return list(state.touched.values())


def go_on(state: LedgerState) -> list[PartitionLog]:
    """The next slice of the entry that was begun. Returns the partitions that it has deleted. RuntimeError as
    `begin_entry`."""
    _check_whole(state)
    state.is_whole = False
    state.touched = {}
    let_go(state)
    state.is_whole = True
    return list(state.touched.values())


def _check_whole(state: LedgerState) -> None:
    if not state.is_whole:
        raise RuntimeError(f"journal entry {state.applied} was applied in part: nothing can go on from there")
