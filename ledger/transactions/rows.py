"""Image rows of transactional ids and of offsets that pend, from feature level 6 on (big-endian).

A transactional id has its UTF-8 as key, and the fields of `ledger/transactions/records.py`; with an open
transaction then `I partitions | I number of each | groups as text`. A pending offset has `q producer id | H
length | group id | 16s topic id | I partition` as its key, and `q offset | i leader epoch | q order | ?
is overtaken | metadata`.
"""

import struct
from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.fields import FieldReader, encode_text
from ledger.machine import Section
from ledger.state import LedgerState
from ledger.transactions.records import decode_transaction, encode_transaction
from ledger.transactions.state import PendingKey, PendingOffset, Transactions
from ledger.types import TOPIC_ID_BYTES, TopicId

TRANSACTION, PENDING = 22, 23

_U32 = struct.Struct(">I")
_PRODUCER_LENGTH = struct.Struct(">qH")
_PENDING = struct.Struct(">qiq?")


def _names(state: LedgerState) -> Iterable[str]:
    return state.part(Transactions).by_id


def _encode(state: LedgerState, name: str) -> bytes | None:
    transactions = state.part(Transactions)
    transaction = transactions.by_id.get(name)
    if transaction is None:
        return None
    fields = encode_transaction(transaction)
    touched = transactions.open.get(transaction.producer_id)
    if touched is None:
        return fields
    parts = [fields, _U32.pack(len(touched.partitions)), *map(_U32.pack, touched.partitions)]
    # Those that have pending offsets have rows of their own, but not all have any.
    return b"".join([*parts, *map(encode_text, touched.groups)])


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    transactions = state.part(Transactions)
    for key, value in rows:
        reader = FieldReader(memoryview(value))
        transaction = decode_transaction(reader)
        if transaction.transactional_id.encode() != key:
            raise StoreDamaged("the row of a transactional id in an image names another one")
        if transaction.producer_id in transactions.by_producer:
            raise StoreDamaged(f"producer id {transaction.producer_id} of an image has two transactional ids")
        transactions.put(transaction)
        if transaction.is_open:
            numbers, groups = [reader.u32() for _ in range(reader.u32())], []
            while left := reader.rest():
                reader = FieldReader(left)
                groups.append(reader.text())
            transactions.add(transaction.producer_id, numbers, groups)
        else:
            reader.end()


def _pending_keys(state: LedgerState) -> Iterable[PendingKey]:
    return state.part(Transactions).waiting_keys()


def _encode_key(key: PendingKey) -> bytes:
    producer_id, group_id, (topic_id, partition) = key
    name = group_id.encode()
    return b"".join((_PRODUCER_LENGTH.pack(producer_id, len(name)), name, topic_id, _U32.pack(partition)))


def _decode_key(key: bytes) -> PendingKey:
    producer_id, size = _PRODUCER_LENGTH.unpack_from(key)
    at = _PRODUCER_LENGTH.size + size
    topic_end = at + TOPIC_ID_BYTES
    (partition,) = _U32.unpack(key[topic_end:])
    group_id = key[_PRODUCER_LENGTH.size : at].decode()
    return producer_id, group_id, (TopicId(key[at:topic_end]), partition)


def _encode_pending(state: LedgerState, key: PendingKey) -> bytes | None:
    pending = state.part(Transactions).pending(key)
    if pending is None:
        return None
    head = _PENDING.pack(pending.offset, pending.leader_epoch, pending.order, pending.is_overtaken)
    return head + pending.metadata.encode()


def _restore_pending(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    transactions = state.part(Transactions)
    for key, value in rows:
        producer_id, group_id, offset_key = _decode_key(key)
        if producer_id not in transactions.open:
            raise StoreDamaged(
                f"an offset of an image pends for producer {producer_id}, which has nothing open"
            )
        offset, epoch, order, is_overtaken = _PENDING.unpack_from(value)
        metadata = value[_PENDING.size :].decode()
        pending = PendingOffset(offset, epoch, metadata, order, is_overtaken)
        transactions.pend(producer_id, group_id, offset_key, pending)


def complete(state: LedgerState) -> None:
    """StoreDamaged where a partition has an open transaction that no transactional id has."""
    opened = state.part(Transactions).open
    for number, log in state.logs.items():
        for producer_id in log.isolation.open:
            if log.deleted or (producer_id in opened and number in opened[producer_id].partitions):
                continue
            raise StoreDamaged(
                f"partition number {number} of an image has an open transaction of producer {producer_id}, "
                "which has none"
            )


SECTIONS = (
    Section(TRANSACTION, _names, str.encode, bytes.decode, _encode, _restore, announced=True),
    Section(
        PENDING, _pending_keys, _encode_key, _decode_key, _encode_pending, _restore_pending, announced=True
    ),
)
