"""The transaction coordinator: hands requests of producers with transactional ids to the shard.

The ledger decides all of them (`ledger/transactions`), and each is one journal entry. So nothing is kept
here, a coordinator needs no loading, and a request whose outcome is unknown may be sent again.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from gateway.completion import Cancellable, Completion
from gateway.coordination.ledger import Ledger
from gateway.telemetry.transactions import TransactionOutcome
from gateway.timers.deadlines import Deadlines
from gateway.transactions.long_matches import LongMatches
from gateway.transactions.pending import RETRIABLE, PendingRequest
from ledger.errors import ErrorName, StoreError
from ledger.records import LEVEL_WITH_TRANSACTIONS
from ledger.requests import LedgerResult, Refused
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

_EMPTY_ID: Final = Refused(ErrorName.INVALID_REQUEST, "the transactional id is empty")

_AnyRequest: TypeAlias = InitTransactionalId | AddToTransaction | EndTransaction
_Request = TypeVar("_Request", bound=_AnyRequest)
_Start: TypeAlias = Callable[[_Request, float, Completion[LedgerResult]], Cancellable]


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
        self._deadlines = Deadlines()
        """Of the requests that wait for the shard."""
        self.long_matches = LongMatches()

    def close(self) -> None:
        """Cancel all deadlines."""
        self._deadlines.close()

    @property
    def is_served(self) -> bool:
        """Whether the journal may hold transactions."""
        return self._shard.state.feature_level >= LEVEL_WITH_TRANSACTIONS

    def has_open(self, transactional_id: str) -> bool:
        """Whether it has an open transaction, as far as the journal has been read here."""
        known = self._shard.state.part(Transactions).by_id.get(transactional_id)
        return known is not None and known.is_open

    async def init(
        self, transactional_id: str, timeout_ms: int, expected: Expected | None, deadline: float
    ) -> ProducerEpoch | Refused:
        """InitProducerId. `expected`: what the producer believes to be; None: it is a new one. Refused with
        RETRIABLE if the outcome is unknown."""
        if not transactional_id:
            return _EMPTY_ID
        if not 0 < timeout_ms <= self._max_timeout_ms:
            return Refused(
                ErrorName.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout is from 1 to {self._max_timeout_ms} ms",
            )
        result = await _awaited(
            self._start_init, InitTransactionalId(transactional_id, timeout_ms, expected), deadline
        )
        assert isinstance(result, (ProducerEpoch, Refused))
        return result

    async def add(self, request: AddToTransaction, deadline: float) -> Refused | None:
        """AddPartitionsToTxn and AddOffsetsToTxn: None when all are added."""
        result = await _awaited(self.start_add, request, deadline)
        return result if isinstance(result, Refused) else None

    def start_add(
        self, request: AddToTransaction, deadline: float, completion: Completion[LedgerResult]
    ) -> Cancellable:
        """The same without a wait: Done or Refused goes to the completion, perhaps before this returns."""
        return self._start(request, partial(self._added, request), deadline, completion)

    async def end(self, request: EndTransaction, deadline: float) -> ProducerEpoch | Refused:
        """EndTxn: with what the producer goes on."""
        result = await _awaited(self.start_end, request, deadline)
        assert isinstance(result, (ProducerEpoch, Refused))
        return result

    def start_end(
        self, request: EndTransaction, deadline: float, completion: Completion[LedgerResult]
    ) -> Cancellable:
        """The same without a wait: a ProducerEpoch or Refused goes to the completion, perhaps before this
        returns."""
        return self._start(request, partial(self._ended, request), deadline, completion)

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

    def _start_init(
        self, request: InitTransactionalId, deadline: float, completion: Completion[LedgerResult]
    ) -> Cancellable:
        return self._start(request, self._initialised, deadline, completion)

    def _start(
        self,
        request: _AnyRequest,
        observe: Callable[[LedgerResult], None],
        deadline: float,
        completion: Completion[LedgerResult],
    ) -> Cancellable:
        pending = PendingRequest(completion, self._deadlines, observe)
        if request.transactional_id:
            pending.submit(self._shard, request, deadline)
        else:
            pending.set_result(_EMPTY_ID)
        return pending

    def _initialised(self, result: LedgerResult) -> None:
        if isinstance(result, ProducerEpoch) and result.aborted:
            self._on_end(TransactionOutcome.FENCED)

    def _added(self, request: AddToTransaction, result: LedgerResult) -> None:
        if result is TOO_MANY_PRODUCERS:
            self._crowded.update(_full(self._shard.state, request.partitions))

    def _ended(self, request: EndTransaction, result: LedgerResult) -> None:
        if isinstance(result, ProducerEpoch) and not result.ended_before:
            outcome = TransactionOutcome.COMMITTED if request.is_commit else TransactionOutcome.ABORTED
            self._on_end(outcome)


async def _awaited(start: _Start[_Request], request: _Request, deadline: float) -> LedgerResult:
    completed: asyncio.Future[LedgerResult] = asyncio.get_running_loop().create_future()
    pending = start(request, deadline, completed)
    try:
        return await completed
    finally:
        pending.cancel()


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
