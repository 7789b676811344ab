"""The transaction coordinator: hands requests of producers with transactional ids to the shard.

The ledger decides all of them (`ledger/transactions`), and each is one journal entry. So nothing is kept
here, a coordinator needs no loading, and a request whose outcome is unknown may be sent again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from gateway.coordination.ledger import Ledger
from gateway.telemetry.transactions import TransactionOutcome
from ledger.errors import ErrorName, StoreError
from ledger.records import LEVEL_WITH_TRANSACTIONS
from ledger.requests import Done, LedgerResult, Refused
from ledger.state import LedgerState
from ledger.transactions.decide import TOO_MANY_PRODUCERS
from ledger.transactions.requests import (
    AddToTransaction,
    EndTransaction,
    InitTransactionalId,
    ProducerEpoch,
    TopicPartition,
)
from ledger.transactions.rules import Expected, verify
from ledger.transactions.state import Transactions

RETRIABLE: Final = ErrorName.COORDINATOR_NOT_AVAILABLE
"""Clients look the coordinator up and send the request again."""
_EMPTY_ID: Final = Refused(ErrorName.INVALID_REQUEST, "the transactional id is empty")

_AnyRequest: TypeAlias = InitTransactionalId | AddToTransaction | EndTransaction


class TransactionCoordinator:
    """Every transactional id of the shard. All deadlines are loop time."""

    def __init__(
        self,
        shard: Ledger,
        max_timeout_ms: int,
        on_end: Callable[[TransactionOutcome], None] = lambda outcome: None,
        crowded: set[int] | None = None,
    ) -> None:
        """`on_end` is called once for each transaction that ends. `crowded` gets the numbers of partitions
        that have no capacity for another producer."""
        self._shard = shard
        self._max_timeout_ms = max_timeout_ms
        self._on_end = on_end
        self._crowded = set() if crowded is None else crowded

    @property
    def is_served(self) -> bool:
        """Whether the journal may hold transactions."""
        return self._shard.state.feature_level >= LEVEL_WITH_TRANSACTIONS

    async def init(
        self, transactional_id: str, timeout_ms: int, expected: Expected | None, deadline: float
    ) -> ProducerEpoch | Refused:
        """InitProducerId. `expected`: what the producer believes to be; None: it is a new one."""
        if not transactional_id:
            return _EMPTY_ID
        if not 0 < timeout_ms <= self._max_timeout_ms:
            return Refused(
                ErrorName.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout is from 1 to {self._max_timeout_ms} ms",
            )
        result = await self._ask(InitTransactionalId(transactional_id, timeout_ms, expected), deadline)
        assert isinstance(result, (ProducerEpoch, Refused))
        if isinstance(result, ProducerEpoch) and result.aborted:
            self._on_end(TransactionOutcome.FENCED)
        return result

    async def add(self, request: AddToTransaction, deadline: float) -> Refused | None:
        """AddPartitionsToTxn and AddOffsetsToTxn: None when all are added."""
        if not request.transactional_id:
            return _EMPTY_ID
        result = await self._ask(request, deadline)
        assert isinstance(result, (Done, Refused))
        if result is TOO_MANY_PRODUCERS:
            self._crowded.update(_full(self._shard.state, request.partitions))
        return result if isinstance(result, Refused) else None

    async def end(self, request: EndTransaction, deadline: float) -> ProducerEpoch | Refused:
        """EndTxn: with what the producer goes on."""
        if not request.transactional_id:
            return _EMPTY_ID
        result = await self._ask(request, deadline)
        assert isinstance(result, (ProducerEpoch, Refused))
        if isinstance(result, ProducerEpoch) and not result.ended_before:
            outcome = TransactionOutcome.COMMITTED if request.is_commit else TransactionOutcome.ABORTED
            self._on_end(outcome)
        return result

    async def lacking(self, request: AddToTransaction, deadline: float) -> Refused | set[TopicPartition]:
        """Which of these partitions are not in the open transaction of the producer."""
        if not request.transactional_id:
            return _EMPTY_ID
        try:
            await self._shard.barrier(deadline)
        except (StoreError, TimeoutError):
            return Refused(RETRIABLE)
        state = self._shard.state
        transactions = state.part(Transactions)
        known = transactions.by_id.get(request.transactional_id)
        error = verify(known, request.producer_id, request.epoch)
        if error is not None:
            return Refused(error)
        touched = transactions.open.get(request.producer_id)
        numbers = {} if touched is None else touched.partitions
        return {partition for partition in request.partitions if _number(state, partition) not in numbers}

    async def _ask(self, request: _AnyRequest, deadline: float) -> LedgerResult:
        try:
            return await self._shard.ask(request, deadline)
        except (StoreError, TimeoutError) as error:
            return Refused(RETRIABLE, str(error))


def _full(state: LedgerState, partitions: Sequence[TopicPartition]) -> Iterator[int]:
    """Numbers of those that remember as many producers as they may."""
    for partition in partitions:
        log = state.logs.get(number) if (number := _number(state, partition)) is not None else None
        if log is not None and len(log.producers) >= state.producer_bounds.partition:
            yield log.number


def _number(state: LedgerState, partition: TopicPartition) -> int | None:
    topic = state.topics.by_id.get(partition.topic_id)
    return None if topic is None else topic.partitions[partition.partition].number


def error_in_version(error: ErrorName, version: int, first_with_fenced: int) -> ErrorName:
    """The error that a client of this version gets. Older ones do not know PRODUCER_FENCED (KIP-588)."""
    if error == ErrorName.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorName.INVALID_PRODUCER_EPOCH
    return error
