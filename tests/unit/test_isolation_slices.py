"""What aborted transactions cost when the log start passes them in slices, as retention moves it."""

from collections.abc import Iterable
from typing import Any, Final

from ledger.partitions.isolation import COPIED, AbortedTransaction
from ledger.partitions.isolation_rows import ABORTED_TRANSACTION, drop_below_start
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from tests.support.journalled import topic_id

MANY: Final = 20 * COPIED
SLICES: Final = 100
OF_A_SLICE: Final = MANY // SLICES


class Counted(list[AbortedTransaction]):
    """Counts how many of its elements are read. So do its slices."""

    reads = 0

    def __iter__(self) -> Any:
        Counted.reads += len(self)
        return super().__iter__()

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if isinstance(found, list):
            Counted.reads += len(found)
            return Counted(found)
        Counted.reads += 1
        return found


def log_with(aborted: Iterable[AbortedTransaction]) -> PartitionLog:
    log = PartitionLog(7, topic_id(1), 0)
    log.transactional().aborted = Counted(aborted)
    Counted.reads = 0
    return log


def transactions(count: int) -> list[AbortedTransaction]:
    """Each of one record and its marker."""
    return [AbortedTransaction(2 * n + 1, n, 2 * n, 2 * n + 2) for n in range(count)]


def test_a_log_start_that_rises_in_slices_reads_each_aborted_transaction_a_few_times() -> None:
    state, log = LedgerState(), log_with(transactions(MANY))
    for number in range(1, SLICES + 1):
        log.log_start = 2 * OF_A_SLICE * number
        drop_below_start(state, log)
        assert log.isolation.aborted_at(log.log_start - 1) is None
    assert Counted.reads <= 4 * MANY
    assert log.isolation.is_empty and len(state.dirty[ABORTED_TRANSACTION]) == MANY


def test_a_log_start_below_all_aborted_transactions_copies_none() -> None:
    state, log = LedgerState(), log_with(transactions(MANY))
    log.log_start = 1
    kept = log.isolation.aborted
    drop_below_start(state, log)
    assert Counted.reads < 100 and log.isolation.aborted is kept and not state.dirty[ABORTED_TRANSACTION]


def test_dropped_ones_are_gone_at_once_and_a_planned_read_keeps_its_own() -> None:
    state, log = LedgerState(), log_with(transactions(MANY))
    planned = log.isolation.aborted
    log.log_start = 2 * OF_A_SLICE
    drop_below_start(state, log)
    live = [found.last for found in log.isolation.live()]
    assert live == [2 * n + 1 for n in range(OF_A_SLICE, MANY)]
    assert log.isolation.aborted_at(live[0] - 2) is None
    assert log.isolation.aborted_at(live[0]) is not None
    assert len(planned) == MANY and planned[0].last == 1
    assert next(log.isolation.aborted_in(log.log_start, log.log_start + 2)).last == live[0]
