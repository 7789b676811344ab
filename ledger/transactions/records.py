"""Metadata records of transactions, and their bytes (big-endian).

| type | record                | body                                                                     |
|------|-----------------------|--------------------------------------------------------------------------|
| 40   | TransactionStored     | transaction                                                              |
| 41   | AddedToTransaction    | i64 producer id, u32 partitions, u32 number of each, then groups as text |
| 42   | OffsetsPended         | i64 producer id, then as OffsetsCommitted                                |
| 43   | TransactionEnded      | i64 producer id, i16 epoch of the markers, u8 is commit, transaction     |
| 44   | TransactionalIdsExpired | ids as text                                                            |
| 45   | PartitionsMarked      | i64 producer id, i16 epoch, u8 is commit, u32 number of each partition   |

| transaction | field                                                                             |
|-------------|-----------------------------------------------------------------------------------|
| i64         | producer id                                                                       |
| i16, i16    | epoch, last epoch                                                                 |
| i64         | previous producer id                                                              |
| i32         | timeout, ms                                                                       |
| u8          | status: 0 Empty, 1 Ongoing, 2 CompleteCommit, 3 CompleteAbort                     |
| i64, i64    | started, updated: entry times                                                     |
| text        | transactional id                                                                  |
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ledger.errors import StoreDamaged
from ledger.fields import FieldReader, encode_text
from ledger.groups.records import OFFSETS_COMMITTED, OffsetsCommitted
from ledger.records import LEVEL_WITH_TRANSACTIONS, RecordFormat
from ledger.transactions.state import Status, Transaction

_HEAD = struct.Struct(">qhhqiBqq")
_PRODUCER_COUNT = struct.Struct(">qI")
_ENDED = struct.Struct(">qhB")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_STATUSES: Final = (Status.EMPTY, Status.ONGOING, Status.COMMITTED, Status.ABORTED)
_NUMBERS: Final = {status: number for number, status in enumerate(_STATUSES)}


@dataclass(frozen=True, slots=True)
class TransactionStored:
    """What a transactional id is from here on. It has no open transaction, or one that begins, or goes on."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class AddedToTransaction:
    """The open transaction of a producer has touched these."""

    producer_id: int
    numbers: Sequence[int]
    groups: Sequence[str]


@dataclass(frozen=True, slots=True)
class OffsetsPended:
    """Offsets that are committed with the open transaction of a producer."""

    producer_id: int
    offsets: OffsetsCommitted


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The open transaction of a producer ends in all that it has touched: each partition gets a marker, in
    the order in which they were added, and pending offsets are committed or dropped."""

    producer_id: int
    marker_epoch: int
    is_commit: bool
    after: Transaction


@dataclass(frozen=True, slots=True)
class TransactionalIdsExpired:
    """These are forgotten."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class PartitionsMarked:
    """Each of these partitions gets a marker, whatever transaction it is of."""

    producer_id: int
    epoch: int
    is_commit: bool
    numbers: Sequence[int]


def encode_transaction(transaction: Transaction) -> bytes:
    """The fields above."""
    name, producer_id, epoch, last_epoch, previous, timeout_ms, status, started_ms, updated_ms = transaction
    head = producer_id, epoch, last_epoch, previous, timeout_ms, _NUMBERS[status], started_ms, updated_ms
    return _HEAD.pack(*head) + encode_text(name)


def decode_transaction(reader: FieldReader) -> Transaction:
    """The reverse. StoreDamaged for a status that there is not."""
    producer_id, epoch, last_epoch, previous, timeout_ms, number, started_ms, updated_ms = _HEAD.unpack(
        reader.take(_HEAD.size)
    )
    if number >= len(_STATUSES):
        raise StoreDamaged(f"a transactional id has the status {number}")
    status = _STATUSES[number]
    name = reader.text()
    return Transaction(
        name, producer_id, epoch, last_epoch, previous, timeout_ms, status, started_ms, updated_ms
    )


def _encode_stored(record: TransactionStored) -> bytes:
    return encode_transaction(record.transaction)


def _decode_stored(body: memoryview) -> TransactionStored:
    reader = FieldReader(body)
    stored = TransactionStored(decode_transaction(reader))
    reader.end()
    return stored


def _encode_added(record: AddedToTransaction) -> bytes:
    head = _PRODUCER_COUNT.pack(record.producer_id, len(record.numbers))
    return b"".join([head, *map(_U32.pack, record.numbers), *map(encode_text, record.groups)])


def _decode_added(body: memoryview) -> AddedToTransaction:
    producer_id, count = _PRODUCER_COUNT.unpack_from(body)
    reader = FieldReader(body[_PRODUCER_COUNT.size :])
    numbers = [number for (number,) in _U32.iter_unpack(reader.take(count * _U32.size))]
    return AddedToTransaction(producer_id, numbers, _texts(reader.rest()))


def _encode_pended(record: OffsetsPended) -> bytes:
    return _I64.pack(record.producer_id) + OFFSETS_COMMITTED.encode(record.offsets)


def _decode_pended(body: memoryview) -> OffsetsPended:
    (producer_id,) = _I64.unpack_from(body)
    offsets = OFFSETS_COMMITTED.decode(body[_I64.size :])
    assert isinstance(offsets, OffsetsCommitted)
    return OffsetsPended(producer_id, offsets)


def _encode_ended(record: TransactionEnded) -> bytes:
    head = _ENDED.pack(record.producer_id, record.marker_epoch, record.is_commit)
    return head + encode_transaction(record.after)


def _decode_ended(body: memoryview) -> TransactionEnded:
    reader = FieldReader(body)
    producer_id, epoch, is_commit = _ENDED.unpack(reader.take(_ENDED.size))
    ended = TransactionEnded(producer_id, epoch, bool(is_commit), decode_transaction(reader))
    reader.end()
    return ended


def _encode_expired(record: TransactionalIdsExpired) -> bytes:
    return b"".join(map(encode_text, record.names))


def _decode_expired(body: memoryview) -> TransactionalIdsExpired:
    return TransactionalIdsExpired(_texts(body))


def _encode_marked(record: PartitionsMarked) -> bytes:
    head = _ENDED.pack(record.producer_id, record.epoch, record.is_commit)
    return b"".join([head, *map(_U32.pack, record.numbers)])


def _decode_marked(body: memoryview) -> PartitionsMarked:
    producer_id, epoch, is_commit = _ENDED.unpack_from(body)
    numbers = [number for (number,) in _U32.iter_unpack(body[_ENDED.size :])]
    return PartitionsMarked(producer_id, epoch, bool(is_commit), numbers)


def _texts(body: memoryview) -> Sequence[str]:
    names: list[str] = []
    left = body
    while len(left):
        reader = FieldReader(left)
        names.append(reader.text())
        left = reader.rest()
    return names


TRANSACTION_STORED = RecordFormat(
    40, TransactionStored, _encode_stored, _decode_stored, level=LEVEL_WITH_TRANSACTIONS
)
ADDED_TO_TRANSACTION = RecordFormat(
    41, AddedToTransaction, _encode_added, _decode_added, level=LEVEL_WITH_TRANSACTIONS
)
OFFSETS_PENDED = RecordFormat(
    42, OffsetsPended, _encode_pended, _decode_pended, level=LEVEL_WITH_TRANSACTIONS
)
TRANSACTION_ENDED = RecordFormat(
    43, TransactionEnded, _encode_ended, _decode_ended, level=LEVEL_WITH_TRANSACTIONS
)
TRANSACTIONAL_IDS_EXPIRED = RecordFormat(
    44, TransactionalIdsExpired, _encode_expired, _decode_expired, level=LEVEL_WITH_TRANSACTIONS
)
PARTITIONS_MARKED = RecordFormat(
    45, PartitionsMarked, _encode_marked, _decode_marked, level=LEVEL_WITH_TRANSACTIONS
)
