"""What transactional ids and their transactions are, as Kafka's tools show them. Pure: reads the ledger."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from gateway.regex import TooLong
from ledger.partitions.markers import COORDINATOR_EPOCH
from ledger.partitions.producers import ProducerState
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.transactions.decide import live_log
from ledger.transactions.state import Transaction, Transactions

STATES: Final = frozenset(
    {
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence"),
    }
)
"""Kafka's. A transaction here ends in one step, so four of them never are."""
ANY_DURATION: Final = -1
NO_COORDINATOR: Final = -1


class IdPattern(Protocol):
    """A regular expression of whole ids (`gateway/regex.py`)."""

    def units(self, text: str) -> int:
        """TooLong if a match may take too long for the event loop."""
        ...

    def matches(self, text: str) -> bool: ...


class TransactionDescription(NamedTuple):
    """`partitions`: of the open transaction, by topic, in the order in which they were added."""

    transaction: Transaction
    partitions: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """What is empty lets everything pass."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    open_longer_than_ms: int = ANY_DURATION
    """Since the transaction began, also if it has ended; an id that had none has an endless one."""
    pattern: IdPattern | None = None

    def passes(self, transaction: Transaction, now_ms: int) -> bool:
        """Apart from the pattern."""
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states and transaction.status not in self.states:
            return False
        longest = self.open_longer_than_ms
        return longest < 0 or now_ms - transaction.started_ms > longest


def describe(state: LedgerState, transactional_id: str) -> TransactionDescription | None:
    """None if there is no such id."""
    transactions = state.part(Transactions)
    transaction = transactions.by_id.get(transactional_id)
    if transaction is None:
        return None
    touched = transactions.open.get(transaction.producer_id)
    partitions: dict[str, list[int]] = {}
    for log in _logs(state, () if touched is None else touched.partitions):
        partitions.setdefault(state.topics.by_id[log.topic_id].name, []).append(log.index)
    return TransactionDescription(transaction, partitions)


def _logs(state: LedgerState, numbers: Iterable[int]) -> Iterable[PartitionLog]:
    """Those whose topics are there."""
    return (log for number in numbers if (log := live_log(state, number)) is not None)


class Selection(NamedTuple):
    """What passes a filter; `long` has ids that are too long to be matched on the event loop, and passes if
    they match."""

    found: list[Transaction]
    long: list[Transaction]


def select(
    known: Sequence[Transaction], wanted: TransactionFilter, now_ms: int
) -> Generator[int, None, Selection]:
    """Yields the units of work that come next (`gateway/scheduling/slices.py`)."""
    selection = Selection([], [])
    for transaction in known:
        yield 1
        if not wanted.passes(transaction, now_ms):
            continue
        if wanted.pattern is not None:
            name = transaction.transactional_id
            try:
                units = wanted.pattern.units(name)
            except TooLong:
                selection.long.append(transaction)
                continue
            yield units
            if not wanted.pattern.matches(name):
                continue
        selection.found.append(transaction)
    return selection


def coordinator_epoch(state: LedgerState, log: PartitionLog, producer_id: int, known: ProducerState) -> int:
    """Of the last marker of a producer in a partition; NO_COORDINATOR if it has none.

    A partition does not remember that, but nearly always it follows from what it does remember.
    """
    first = log.isolation.open.get(producer_id)
    if first is not None:
        had_one = known.epoch > 0 or any(base < first for _, _, base in known.batches)
    else:
        had_one = known.last_sequence is None or producer_id in state.part(Transactions).by_producer
    return COORDINATOR_EPOCH if had_one else NO_COORDINATOR
