"""Applying the metadata records of transactions."""

from collections.abc import Iterable

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.groups.apply import put_offsets
from ledger.groups.records import GroupRemoved, OffsetsCommitted, OffsetsRemoved
from ledger.groups.state import CommittedOffset, OffsetKey
from ledger.partitions.isolation_rows import begin_transaction, mark
from ledger.partitions.records import FileCommitted
from ledger.partitions.rows import PARTITION
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.transactions.decide import live_log, marked
from ledger.transactions.records import (
    AddedToTransaction,
    OffsetsPended,
    PartitionsMarked,
    TransactionalIdsExpired,
    TransactionEnded,
    TransactionStored,
)
from ledger.transactions.rows import PENDING, TRANSACTION
from ledger.transactions.state import ORDER_OF_COMMITS, PendingKey, PendingOffset, Transactions


def transaction_stored(state: LedgerState, record: TransactionStored) -> None:
    transactions, transaction = state.part(Transactions), record.transaction
    _changing(state, transaction.transactional_id)
    transactions.put(transaction)
    if transaction.is_open:
        transactions.opened(transaction.producer_id)


def file_committed(state: LedgerState, record: FileCommitted) -> None:
    """Open transactions begin in a partition with their first batch there."""
    if not state.part(Transactions).open:
        return
    runs, left = iter(record.runs), 0
    for _, records, _, producer_id, _, _, attributes in record.batches:
        if not left:
            number, _, _, base, _, _, left = next(runs)
        left -= 1
        # As in a broker, a batch without a producer is in no transaction, whatever its bit says.
        if attributes & TRANSACTIONAL_BIT and producer_id >= 0:
            begin_transaction(state, state.logs[number], producer_id, base)
        base += records


def added_to_transaction(state: LedgerState, record: AddedToTransaction) -> None:
    transactions = state.part(Transactions)
    _changing(state, transactions.by_producer[record.producer_id])
    transactions.add(record.producer_id, record.numbers, record.groups)


def offsets_pended(state: LedgerState, record: OffsetsPended) -> None:
    transactions, group_id = state.part(Transactions), record.offsets.group_id
    for topic_id, partition, offset, epoch, _, metadata in record.offsets.rows:
        key = topic_id, partition
        _changing_pending(state, [(record.producer_id, group_id, key)])
        pending = PendingOffset(offset, epoch, metadata, transactions.order_in(state.applied))
        transactions.pend(record.producer_id, group_id, key, pending)


def transaction_ended(state: LedgerState, record: TransactionEnded) -> None:
    transactions, producer_id = state.part(Transactions), record.producer_id
    _changing(state, record.after.transactional_id)
    touched = transactions.opened(producer_id)
    for number in touched.partitions:
        log = live_log(state, number)
        if log is not None:
            _mark(state, log, producer_id, record.marker_epoch, record.is_commit)
    keys = [(producer_id, group_id, key) for group_id, held in touched.groups.items() for key in held]
    _changing_pending(state, keys)
    transactions.close(producer_id)
    transactions.put(record.after)
    if record.is_commit:
        for group_id, held in touched.groups.items():
            _commit(state, transactions, group_id, held.items())


def _commit(
    state: LedgerState,
    transactions: Transactions,
    group_id: str,
    held: Iterable[tuple[OffsetKey, PendingOffset]],
) -> None:
    now_ms = state.entry_time_ms
    committed: list[tuple[OffsetKey, CommittedOffset]] = []
    for key, pending in held:
        topic_id, _ = key
        if pending.is_overtaken or topic_id not in state.topics.by_id:
            continue
        committed.append(
            (key, CommittedOffset(pending.offset, pending.leader_epoch, pending.metadata, now_ms))
        )
        _overtake(state, transactions, group_id, key, pending.order)
    put_offsets(state, group_id, committed)


def _mark(state: LedgerState, log: PartitionLog, producer_id: int, epoch: int, is_commit: bool) -> None:
    if state.cut is not None:
        state.cut.keep(log.number)
    mark(state, log, producer_id, epoch, is_commit)
    before = log.producers.get(producer_id)
    after = marked(before, epoch)
    after.last_ms = state.entry_time_ms
    log.put_producer(producer_id, after)
    state.producer_count += before is None
    log.is_not_saved(producer_id)
    state.touched[log.number] = log
    state.dirty[PARTITION].add(log.number)


def partitions_marked(state: LedgerState, record: PartitionsMarked) -> None:
    for number in record.numbers:
        log = live_log(state, number)
        if log is not None:
            _mark(state, log, record.producer_id, record.epoch, record.is_commit)


def transactional_ids_expired(state: LedgerState, record: TransactionalIdsExpired) -> None:
    for name in record.names:
        _changing(state, name)
        state.part(Transactions).remove(name)


def offsets_committed(state: LedgerState, record: OffsetsCommitted) -> None:
    """Offsets that pend since before are not committed over these."""
    transactions = state.part(Transactions)
    if transactions.is_waiting(record.group_id):
        for row in record.rows:
            key = row.topic_id, row.partition
            _overtake(state, transactions, record.group_id, key, ORDER_OF_COMMITS)


def _overtake(
    state: LedgerState, transactions: Transactions, group_id: str, key: OffsetKey, order: int
) -> None:
    pending = transactions.waiting_of(group_id, key)
    _changing_pending(state, pending)
    transactions.overtake(group_id, key, order)


def offsets_removed(state: LedgerState, record: OffsetsRemoved) -> None:
    """Offsets that pend are gone too, as in a broker: their transactions commit nothing in their place."""
    transactions, group_id = state.part(Transactions), record.group_id
    if transactions.is_waiting(group_id):
        for key in record.keys:
            _changing_pending(state, transactions.waiting_of(group_id, key))
            transactions.forget_offset(group_id, key)


def group_removed(state: LedgerState, record: GroupRemoved) -> None:
    transactions = state.part(Transactions)
    if transactions.is_waiting(record.group_id):
        _changing_pending(state, transactions.waiting_of(record.group_id))
        transactions.forget_group(record.group_id)


def _changing(state: LedgerState, name: str) -> None:
    if state.cut is not None:
        state.cut.keep_row(TRANSACTION, name)
    state.dirty[TRANSACTION].add(name)


def _changing_pending(state: LedgerState, keys: Iterable[PendingKey]) -> None:
    for key in keys:
        if state.cut is not None:
            state.cut.keep_row(PENDING, key)
        state.dirty[PENDING].add(key)
