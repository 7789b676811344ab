"""Deciding what concerns transactions, but for their batches (`ledger/partitions/commit.py`).

The overlay has what the entry has decided so far: later requests of the same entry see it as if it were
applied, with the offsets that markers will take.
"""

from collections.abc import Iterable, Sequence

from ledger.errors import ErrorName
from ledger.groups.decide import check_offset
from ledger.groups.records import OffsetsCommitted
from ledger.groups.requests import MAX_OFFSETS, OffsetsStored
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.partitions.newcomers import admit_newcomer
from ledger.partitions.producers import ProducerState
from ledger.partitions.records import ProducerIdsReserved
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_TRANSACTIONS, MAX_RECORDS_BYTES, MetadataRecord
from ledger.requests import Done, Refused
from ledger.state import LedgerState
from ledger.transactions import rules
from ledger.transactions.records import (
    AddedToTransaction,
    OffsetsPended,
    PartitionsMarked,
    TransactionalIdsExpired,
    TransactionEnded,
    TransactionStored,
)
from ledger.transactions.requests import (
    MARKS_A_UNIT,
    MAX_GROUPS,
    MAX_PARTITIONS,
    MAX_PENDING,
    MAX_TOUCHED,
    WORK_OF_ONE,
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    ExpireTransactionalIds,
    InitTransactionalId,
    MarkersWritten,
    PendOffsets,
    ProducerEpoch,
    TopicPartition,
    WriteMarkers,
)
from ledger.transactions.rules import Again, Ended, Expected
from ledger.transactions.state import (
    Transaction,
    Transactions,
    TransactionsOfEntry,
    has_group,
    has_number,
    number_count,
    numbers_of,
    pending_count,
)

MAX_TRANSACTIONAL_IDS = 100_000
_OLD_LEVEL = Refused(
    ErrorName.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    f"transactions need ledger.feature_level = {LEVEL_WITH_TRANSACTIONS}",
)
_TOO_MANY_IDS = Refused(
    ErrorName.COORDINATOR_NOT_AVAILABLE,
    f"there are {MAX_TRANSACTIONAL_IDS:,} transactional ids: no more are taken until some have expired",
)
MAX_LONG_IDS = MAX_TRANSACTIONAL_IDS // 32
_ORDINARY_ID_CHARS = 1024
_TOO_MUCH = Refused(
    ErrorName.TRANSACTION_ABORTABLE,
    f"a transaction has up to {MAX_PARTITIONS:,} partitions, {MAX_GROUPS:,} groups, {MAX_PENDING:,} offsets",
)
TOO_MANY_PRODUCERS = Refused(
    ErrorName.COORDINATOR_NOT_AVAILABLE,
    "as many producers are remembered as may be (limits.producers, limits.partition_producers): until some "
    "are forgotten, none is added to a partition that is new to it",
)
"""The gateway has to notice it, so that idle ones are forgotten."""
_FULL = Refused(
    ErrorName.TRANSACTION_ABORTABLE,
    f"all open transactions together have {MAX_TOUCHED:,} partitions, groups and offsets already",
)


def init_transactional_id(
    state: LedgerState, overlay: Overlay, request: InitTransactionalId, now_ms: int
) -> Decision:
    if state.feature_level < LEVEL_WITH_TRANSACTIONS:
        return Decision(_OLD_LEVEL)
    known = find(state, overlay, request.transactional_id)
    if known is None and _is_full(state, request.transactional_id):
        return Decision(_TOO_MANY_IDS)
    name, new_id = request.transactional_id, overlay.next_producer_id
    begun = rules.begin(known, name, request.timeout_ms, request.expected, new_id, now_ms)
    if isinstance(begun, ErrorName):
        return Decision(Refused(begun))
    records: list[MetadataRecord] = []
    work = WORK_OF_ONE
    if begun.aborted is not None:
        assert known is not None
        work = _work_of_end(state, overlay, known.producer_id)
        records.append(_end(state, overlay, known, begun.aborted))
    present = begun.present
    if present is None:
        return Decision(Refused(rules.FENCED), records, work)
    if begun.uses_new_id:
        records.append(_reserve_id(overlay))
    _store(overlay, present)
    records.append(TransactionStored(present))
    return Decision(
        ProducerEpoch(present.producer_id, present.epoch, begun.aborted is not None), records, work
    )


def _is_full(state: LedgerState, name: str) -> bool:
    """As in a broker an id may have any length. Those that are longer than any client uses in earnest are
    taken only while there are few, so that all together have a bound in bytes."""
    most = MAX_LONG_IDS if len(name) > _ORDINARY_ID_CHARS else MAX_TRANSACTIONAL_IDS
    return len(state.part(Transactions).by_id) >= most


def add_to_transaction(
    state: LedgerState, overlay: Overlay, request: AddToTransaction, now_ms: int
) -> Decision:
    known = find(state, overlay, request.transactional_id)
    refusal = rules.verify(known, request.producer_id, request.epoch)
    if known is None or refusal is not None:
        return Decision(Refused(refusal or rules.NO_MAPPING))
    numbers: list[int] = []
    for partition in request.partitions:
        log = _find_partition(state, overlay, partition)
        if log is None:
            return Decision(Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION))
        numbers.append(log.number)
    return add(state, overlay, known, numbers, request.groups, now_ms)


def add(
    state: LedgerState,
    overlay: Overlay,
    known: Transaction,
    numbers: Iterable[int],
    groups: Iterable[str],
    now_ms: int,
) -> Decision:
    """Add partitions and groups to a transaction that may go on (`rules.verify`). Done(how many are new);
    Refused if they are too many."""
    transactions, entry = state.part(Transactions), overlay.part(TransactionsOfEntry)
    producer_id = known.producer_id
    new_numbers = [
        number
        for number in dict.fromkeys(numbers)
        if not has_number(transactions, entry, producer_id, number)
    ]
    new_groups = [
        group for group in dict.fromkeys(groups) if not has_group(transactions, entry, producer_id, group)
    ]
    if known.is_open and not new_numbers and not new_groups:
        return Decision(Done(0))
    if (
        _has_max_partitions(transactions, entry, producer_id, len(new_numbers))
        or _group_count(state, overlay, producer_id) + len(new_groups) > MAX_GROUPS
    ):
        return Decision(_TOO_MUCH)
    if transactions.touched >= MAX_TOUCHED:
        return Decision(_FULL)
    if new_numbers and (full := _has_max_producers(state, overlay, producer_id, new_numbers)) is not None:
        return Decision(full)
    records: list[MetadataRecord] = []
    if not known.is_open:
        known = rules.go_on(known, now_ms)
        _store(overlay, known)
        records.append(TransactionStored(known))
    if new_numbers or new_groups:
        entry.partitions.setdefault(producer_id, {}).update(dict.fromkeys(new_numbers))
        entry.groups.setdefault(producer_id, {}).update(dict.fromkeys(new_groups))
        records.append(AddedToTransaction(producer_id, new_numbers, new_groups))
    return Decision(Done(len(new_numbers) + len(new_groups)), records)


def _has_max_partitions(
    transactions: Transactions, entry: TransactionsOfEntry, producer_id: int, new: int
) -> bool:
    if number_count(transactions, entry, producer_id) + new <= MAX_PARTITIONS:
        return False
    return len(numbers_of(transactions, entry, producer_id)) + new > MAX_PARTITIONS


def _has_max_producers(
    state: LedgerState, overlay: Overlay, producer_id: int, numbers: Sequence[int]
) -> Refused | None:
    """With the end of its transaction a producer is remembered in each partition that was added, whether it
    has written there or not."""
    bounds, logs = state.producer_bounds, [state.logs[number] for number in numbers]
    new = [log for log in logs if producer_id not in log.producers]
    most = bounds.total - overlay.producer_count - state.part(Transactions).touched
    is_full = len(new) > max(most, 0) or any(len(log.producers) >= bounds.partition for log in new)
    return TOO_MANY_PRODUCERS if new and is_full else None


def _group_count(state: LedgerState, overlay: Overlay, producer_id: int) -> int:
    entry = overlay.part(TransactionsOfEntry)
    touched = None if producer_id in entry.closed else state.part(Transactions).open.get(producer_id)
    return len(entry.groups.get(producer_id, {})) + (len(touched.groups) if touched is not None else 0)


def end_transaction(state: LedgerState, overlay: Overlay, request: EndTransaction, now_ms: int) -> Decision:
    known = find(state, overlay, request.transactional_id)
    if request.bumps:
        expected, new_id = Expected(request.producer_id, request.epoch), overlay.next_producer_id
        ending = rules.end_and_bump(known, expected, request.is_commit, new_id, now_ms)
    else:
        ending = rules.end(known, request.producer_id, request.epoch, request.is_commit, now_ms)
    if isinstance(ending, ErrorName):
        return Decision(Refused(ending))
    if isinstance(ending, Again):
        present = ending.present
        return Decision(ProducerEpoch(present.producer_id, present.epoch, ended_before=True))
    assert known is not None
    work = _work_of_end(state, overlay, known.producer_id)
    records: list[MetadataRecord] = []
    if ending.after.producer_id != known.producer_id:
        records.append(_reserve_id(overlay))
    if known.is_open:
        records.append(_end(state, overlay, known, ending))
    else:
        _store(overlay, ending.after)
        records.append(TransactionStored(ending.after))
    result = ProducerEpoch(ending.after.producer_id, ending.after.epoch, ended_before=not known.is_open)
    return Decision(result, records, work)


def abort_transaction(
    state: LedgerState, overlay: Overlay, request: AbortTransaction, now_ms: int
) -> Decision:
    known = find(state, overlay, request.transactional_id)
    if known is None or not known.is_open:
        return Decision(Done(0))
    if (known.producer_id, known.epoch, known.started_ms) != (
        request.producer_id,
        request.epoch,
        request.started_ms,
    ):
        return Decision(Done(0))
    work = _work_of_end(state, overlay, known.producer_id)
    return Decision(Done(1), (_end(state, overlay, known, rules.fence(known, now_ms)),), work)


def _work_of_end(state: LedgerState, overlay: Overlay, producer_id: int) -> int:
    """`Request.work` of the end of what this producer has open."""
    transactions, entry = state.part(Transactions), overlay.part(TransactionsOfEntry)
    marks = number_count(transactions, entry, producer_id)
    return WORK_OF_ONE + (marks + pending_count(transactions, entry, producer_id)) // MARKS_A_UNIT


def pend_offsets(state: LedgerState, overlay: Overlay, request: PendOffsets, now_ms: int) -> Decision:
    known = find(state, overlay, request.transactional_id)
    refusal = rules.verify(known, request.producer_id, request.epoch)
    if known is None or refusal is not None:
        fenced = ErrorName.INVALID_PRODUCER_EPOCH
        return Decision(Refused(fenced if refusal is rules.FENCED else rules.NO_MAPPING))
    if len(request.rows) > MAX_OFFSETS or request.weight > MAX_RECORDS_BYTES:
        return Decision(Refused(ErrorName.INVALID_REQUEST, f"more than {MAX_OFFSETS} offsets at once"))
    transactions, entry = state.part(Transactions), overlay.part(TransactionsOfEntry)
    if not request.adds and not has_group(transactions, entry, known.producer_id, request.group_id):
        return Decision(Refused(rules.WRONG_STATE, "the group was not added to the transaction"))
    pending = pending_count(transactions, entry, known.producer_id)
    if pending + len(request.rows) > MAX_PENDING:
        return Decision(_TOO_MUCH)
    if request.rows and transactions.touched >= MAX_TOUCHED:
        return Decision(_FULL)
    results = [check_offset(state, overlay, row) for row in request.rows]
    stored = [row for row, result in zip(request.rows, results, strict=True) if result is None]
    added = add(state, overlay, known, (), [request.group_id], now_ms)
    if isinstance(added.result, Refused):
        return added
    records = list(added.records)
    if stored:
        entry.pending_groups.add(request.group_id)
        entry.pending[known.producer_id] = entry.pending.get(known.producer_id, 0) + len(stored)
        records.append(OffsetsPended(known.producer_id, OffsetsCommitted(request.group_id, stored)))
    return Decision(OffsetsStored(results), records)


def write_markers(state: LedgerState, overlay: Overlay, request: WriteMarkers, now_ms: int) -> Decision:
    results: list[str | None] = []
    numbers: dict[int, None] = {}
    for partition in request.partitions:
        log = _find_partition(state, overlay, partition)
        if log is None:
            results.append(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        refusal = None if log.number in numbers else _refuse_marker(state, overlay, log, request)
        if refusal is None and log.number not in numbers:
            numbers[log.number] = None
            _mark(overlay, log, request.producer_id, request.epoch)
        results.append(refusal)
    if not numbers:
        return Decision(MarkersWritten(results))
    record = PartitionsMarked(request.producer_id, request.epoch, request.is_commit, list(numbers))
    return Decision(MarkersWritten(results), (record,))


def _refuse_marker(
    state: LedgerState, overlay: Overlay, log: PartitionLog, request: WriteMarkers
) -> ErrorName | None:
    """Why there is no marker in this partition; None if there is one."""
    if state.feature_level < LEVEL_WITH_TRANSACTIONS:
        return ErrorName.UNSUPPORTED_FOR_MESSAGE_FORMAT
    key = log.number, request.producer_id
    producer = overlay.producers.get(key) or log.producers.get(request.producer_id)
    if producer is None:
        refused = admit_newcomer(state, overlay, log)
        return None if refused is None else refused.error
    is_open = request.producer_id in log.isolation.open
    needed = producer.epoch + 1 if request.bumps and is_open else producer.epoch
    return ErrorName.INVALID_PRODUCER_EPOCH if request.epoch < needed else None


def expire_transactional_ids(
    state: LedgerState, overlay: Overlay, request: ExpireTransactionalIds, now_ms: int
) -> Decision:
    names: list[str] = []
    entry = overlay.part(TransactionsOfEntry)
    for name in request.names[: request.limit]:
        known = find(state, overlay, name)
        if known is not None and not known.is_open and known.updated_ms < request.before_ms:
            entry.by_id[name] = None
            names.append(name)
    return Decision(Done(len(names)), (TransactionalIdsExpired(names),) if names else ())


def find(state: LedgerState, overlay: Overlay, transactional_id: str) -> Transaction | None:
    """A transactional id as the entry leaves it so far."""
    decided = overlay.part(TransactionsOfEntry).by_id
    if transactional_id in decided:
        return decided[transactional_id]
    return state.part(Transactions).by_id.get(transactional_id)


def _store(overlay: Overlay, transaction: Transaction) -> None:
    overlay.part(TransactionsOfEntry).by_id[transaction.transactional_id] = transaction


def _reserve_id(overlay: Overlay) -> ProducerIdsReserved:
    overlay.next_producer_id += 1
    return ProducerIdsReserved(overlay.next_producer_id)


def _end(state: LedgerState, overlay: Overlay, known: Transaction, ended: Ended) -> TransactionEnded:
    """The record, and what later decisions of the entry must see of it."""
    transactions, entry = state.part(Transactions), overlay.part(TransactionsOfEntry)
    for number in numbers_of(transactions, entry, known.producer_id):
        log = live_log(state, number)
        if log is not None and log.topic_id not in overlay.deleted:
            _mark(overlay, log, known.producer_id, ended.marker_epoch)
    entry.close(known.producer_id)
    _store(overlay, ended.after)
    return TransactionEnded(known.producer_id, ended.marker_epoch, ended.is_commit, ended.after)


def _mark(overlay: Overlay, log: PartitionLog, producer_id: int, epoch: int) -> None:
    number = log.number
    overlay.next_offset[number] = overlay.next_offset.get(number, log.high_watermark) + 1
    key = number, producer_id
    producer = overlay.producers.get(key) or log.producers.get(producer_id)
    overlay.producers[key] = marked(producer, epoch)


def marked(producer: ProducerState | None, epoch: int) -> ProducerState:
    """What a partition knows of a producer after a marker of this epoch: in a new one, sequences begin at
    0 again."""
    if producer is None or epoch > producer.epoch:
        return ProducerState(epoch)
    return ProducerState(producer.epoch, producer.packed, producer.last_ms)


def live_log(state: LedgerState, number: int) -> PartitionLog | None:
    """The partition of this number; None if its topic is deleted."""
    if number not in state.logs and state.logs.range_of(number) is None:
        return None
    log = state.logs[number]
    return None if log.deleted else log


def _find_partition(state: LedgerState, overlay: Overlay, partition: TopicPartition) -> PartitionLog | None:
    topic = state.topics.by_id.get(partition.topic_id)
    if topic is None or partition.topic_id in overlay.deleted:
        return None
    at = partition.partition
    return topic.partitions[at] if 0 <= at < len(topic.partitions) else None


def expirable(state: LedgerState, names: Iterable[str], before_ms: int, limit: int) -> Sequence[str]:
    """Up to `limit` of these ids that were last used before this entry time, and have no open
    transaction."""
    found: list[str] = []
    known = state.part(Transactions).by_id
    for name in names:
        transaction = known.get(name)
        if transaction is not None and not transaction.is_open and transaction.updated_ms < before_ms:
            found.append(name)
            if len(found) == limit:
                break
    return found
