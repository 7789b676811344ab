"""What aborted transactions cost when the log start passes them in slices, as retention moves it."""

import sys
from itertools import accumulate
from typing import Final

from ledger.partitions.aborted import CHUNK, AbortedTransaction, AbortedTransactions
from ledger.partitions.isolation_rows import ABORTED_TRANSACTION, drop_below_start
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from tests.support.journalled import topic_id

MANY: Final = 20 * CHUNK
SLICES: Final = 100
OF_A_SLICE: Final = MANY // SLICES


class Counted(AbortedTransaction):
    """Counts how often one of them is looked at."""

    looks = 0

    @property
    def last(self) -> int:
        Counted.looks += 1
        return self[0]


def counted(number: int) -> Counted:
    """Of one record and its marker."""
    return Counted(2 * number + 1, number, 2 * number, 2 * number + 2)


def log_with(count: int) -> PartitionLog:
    log = PartitionLog(7, topic_id(1), 0)
    for number in range(count):
        log.transactional().aborted.append(counted(number))
    Counted.looks = 0
    return log


def test_a_log_start_that_rises_in_slices_looks_at_each_aborted_transaction_a_few_times() -> None:
    state, log = LedgerState(), log_with(MANY)
    for number in range(1, SLICES + 1):
        log.log_start = 2 * OF_A_SLICE * number
        drop_below_start(state, log)
    assert Counted.looks <= 3 * MANY
    assert log.isolation.is_empty and len(state.dirty[ABORTED_TRANSACTION]) == MANY


def test_what_is_not_dropped_is_neither_looked_at_nor_copied() -> None:
    state, log = LedgerState(), log_with(MANY)
    planned, newest = log.isolation.aborted, log.isolation.aborted[-1]
    references = sys.getrefcount(newest)
    for log_start, dropped in ((1, 0), (2 * OF_A_SLICE, OF_A_SLICE)):
        Counted.looks, log.log_start = 0, log_start
        drop_below_start(state, log)
        assert Counted.looks < 3 * dropped + 100 and len(state.dirty[ABORTED_TRANSACTION]) == dropped
        assert sys.getrefcount(newest) == references
        assert len(log.isolation.aborted) == MANY - dropped
    assert len(planned) == MANY and planned[0] == counted(0)


def test_whatever_is_left_out_the_others_are_there_and_grow() -> None:
    found: list[AbortedTransaction] = [counted(number) for number in range(2 * CHUNK + 3)]
    counts = [1, CHUNK - 2, 1, 1, CHUNK, 2]
    rest = AbortedTransactions(found)
    before = list[tuple[AbortedTransactions, list[AbortedTransaction]]]()
    for count, dropped in zip(counts, accumulate(counts), strict=True):
        before.append((rest, list(rest)))
        rest = rest.without_first(count)
        found.append(counted(len(found)))
        rest.append(found[-1])
        left = found[dropped:]
        assert list(rest) == left and len(rest) == len(left)
        for offset in (0, left[0].last, left[0].last + 1, left[-1].last, left[-1].last + 1):
            since = [each for each in left if each.last >= offset]
            assert list(rest.since(offset)) == since and rest.below(offset) == len(left) - len(since)
        assert [rest[at] for at in range(len(left))] == left == rest[:] and rest[-1] == left[-1]
    for one, had in before:
        # What has planned a read with one of them has all that was there then.
        assert list(one)[: len(had)] == had
    assert not rest.without_first(len(rest)) and not AbortedTransactions()
    assert not AbortedTransactions().below(1) and not list(AbortedTransactions().since(0))
