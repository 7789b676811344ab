"""Image rows of transactions in partitions, from feature level 6 on (big-endian): where open ones begin, and
which were aborted.

An open one has `I partition number | q producer id` as its key, and `q first offset`. An aborted one has
`I partition number | q offset of the marker`, and `q producer id | q first offset | q last stable offset`.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.partitions.aborted import AbortedTransaction
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState

OPEN_TRANSACTION, ABORTED_TRANSACTION = 20, 21

_KEY = struct.Struct(">Iq")
_FIRST = struct.Struct(">q")
_ABORTED = struct.Struct(">qqq")

Key: TypeAlias = tuple[int, int]
"""(partition number, producer id or offset of the marker)."""


def begin_transaction(state: LedgerState, log: PartitionLog, producer_id: int, offset: int) -> None:
    """The open transaction of a producer has records from this offset on, or from an earlier one."""
    if producer_id in log.isolation.open:
        return
    key = log.number, producer_id
    _changing(state, OPEN_TRANSACTION, key)
    log.begin_transaction(producer_id, offset)
    state.dirty[OPEN_TRANSACTION].add(key)


def mark(state: LedgerState, log: PartitionLog, producer_id: int, epoch: int, is_commit: bool) -> None:
    """Append the marker that ends the transaction of a producer. The caller notes that the partition has
    changed."""
    opened, aborted = (log.number, producer_id), (log.number, log.high_watermark)
    _changing(state, OPEN_TRANSACTION, opened)
    _changing(state, ABORTED_TRANSACTION, aborted)
    was_open = producer_id in log.isolation.open
    if log.mark(producer_id, epoch, is_commit, state.entry_time_ms) is not None:
        state.dirty[ABORTED_TRANSACTION].add(aborted)
    if was_open:
        state.dirty[OPEN_TRANSACTION].add(opened)


def drop_below_start(state: LedgerState, log: PartitionLog) -> None:
    """After the log start moved: aborted transactions below it are forgotten."""
    below = log.isolation.below(log.log_start)
    if below:
        _forget_aborted(state, log.number, below)
        log.isolation.drop_first(len(below))


def forget(state: LedgerState, log: PartitionLog) -> None:
    """The partition is deleted."""
    if log.isolation.is_empty:
        return
    _forget_aborted(state, log.number, log.isolation.aborted)
    for producer_id in log.isolation.open:
        key = log.number, producer_id
        _changing(state, OPEN_TRANSACTION, key)
        state.dirty[OPEN_TRANSACTION].add(key)
    log.transactional().clear()


def _forget_aborted(state: LedgerState, number: int, forgotten: Iterable[AbortedTransaction]) -> None:
    for aborted in forgotten:
        _changing(state, ABORTED_TRANSACTION, (number, aborted.last))
        state.dirty[ABORTED_TRANSACTION].add((number, aborted.last))


def _changing(state: LedgerState, section: int, key: Key) -> None:
    if state.cut is not None:
        state.cut.keep_row(section, key)


def _open_keys(state: LedgerState) -> Iterable[Key]:
    return ((number, producer_id) for number, log in _logs(state) for producer_id in log.isolation.open)


def _aborted_keys(state: LedgerState) -> Iterable[Key]:
    return ((number, aborted.last) for number, log in _logs(state) for aborted in log.isolation.aborted)


def _logs(state: LedgerState) -> Iterable[tuple[int, PartitionLog]]:
    """Those with transactions. Keys are found in steps, between which requests make logs of blank
    partitions: these have none."""
    return [(number, log) for number, log in state.logs.items() if not log.isolation.is_empty]


def _encode_key(key: Key) -> bytes:
    return _KEY.pack(*key)


def _decode_key(key: bytes) -> Key:
    number, second = _KEY.unpack(key)
    return number, second


def _encode_open(state: LedgerState, key: Key) -> bytes | None:
    number, producer_id = key
    log = state.logs.get(number)
    first = log.isolation.open.get(producer_id) if log is not None else None
    return None if first is None else _FIRST.pack(first)


def _encode_aborted(state: LedgerState, key: Key) -> bytes | None:
    number, marker = key
    log = state.logs.get(number)
    found = log.isolation.aborted_at(marker) if log is not None else None
    return None if found is None else _ABORTED.pack(found.producer_id, found.first, found.last_stable)


def _restore_open(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in sorted(rows, key=_first_offset):
        number, producer_id = _decode_key(key)
        (first,) = _FIRST.unpack(value)
        log = state.logs[number]
        if not 0 <= first < log.high_watermark:
            raise StoreDamaged(
                f"a transaction in partition number {number} of an image begins at {first}, and that "
                f"ends at {log.high_watermark}"
            )
        log.begin_transaction(producer_id, first)


def _first_offset(row: tuple[bytes, bytes]) -> bytes:
    return row[1]


def _restore_aborted(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in sorted(rows):
        number, marker = _decode_key(key)
        producer_id, first, last_stable = _ABORTED.unpack(value)
        log = state.logs[number]
        if not first < marker < log.high_watermark:
            raise StoreDamaged(
                f"an aborted transaction in partition number {number} of an image is from {first} to {marker}"
            )
        log.transactional().aborted.append(AbortedTransaction(marker, producer_id, first, last_stable))


SECTIONS = (
    Section(
        OPEN_TRANSACTION, _open_keys, _encode_key, _decode_key, _encode_open, _restore_open, announced=True
    ),
    Section(
        ABORTED_TRANSACTION,
        _aborted_keys,
        _encode_key,
        _decode_key,
        _encode_aborted,
        _restore_aborted,
        announced=True,
    ),
)
