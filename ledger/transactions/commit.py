"""Deciding whether a batch may go into a partition, as far as transactions are concerned."""

from collections.abc import Mapping, Sequence
from typing import Final

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.overlay import Overlay
from ledger.partitions.producers import TOO_MANY_PRODUCERS
from ledger.partitions.requests import CommitBatch, ProducerTransaction
from ledger.partitions.state import PartitionLog
from ledger.records import MetadataRecord
from ledger.requests import Refused
from ledger.state import LedgerState
from ledger.transactions import decide, rules
from ledger.transactions.decide import add, find
from ledger.transactions.records import AddedToTransaction
from ledger.transactions.state import Transaction, Transactions, TransactionsOfEntry, has_number

_NO_ID: Final = Refused(
    ErrorName.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "the batch is of a transaction, and its request names no transactional id",
)
_EMPTY_ID: Final = Refused(ErrorName.INVALID_REQUEST, "the transactional id is empty")
_FENCED: Final = Refused(ErrorName.INVALID_PRODUCER_EPOCH, "the transactional id has another epoch by now")
_NOT_ADDED: Final = "the partition was not added to the transaction"
_OUTSIDE: Final = Refused(
    ErrorName.INVALID_TXN_STATE, "the producer has a transaction here, and the batch is not part of it"
)


class TransactionsOfCommit:
    """Looks at the batches of one commit."""

    __slots__ = ("_added", "_begun", "_now_ms", "_of_batches", "_overlay", "_state")

    def __init__(
        self,
        state: LedgerState,
        overlay: Overlay,
        of_batches: Mapping[int, ProducerTransaction] | None,
        now_ms: int,
    ) -> None:
        self._state = state
        self._overlay = overlay
        self._of_batches = of_batches or {}
        self._now_ms = now_ms
        self._begun: list[MetadataRecord] = []
        self._added: dict[int, list[int]] = {}

    def refusal(self, log: PartitionLog, batch: CommitBatch) -> Refused | None:
        """Why the batch of this producer may not go into the partition; None if it may. The transaction of a
        client of transaction version 2 has the partition from here on."""
        if not batch.attributes & TRANSACTIONAL_BIT:
            return _OUTSIDE if batch.producer_id in log.isolation.open else None
        claimed = self._of_batches.get(batch.start)
        if claimed is None:
            return _NO_ID
        if not claimed.transactional_id:
            return _EMPTY_ID
        known = find(self._state, self._overlay, claimed.transactional_id)
        if known is None or known.producer_id != batch.producer_id:
            return Refused(rules.NO_MAPPING, "the transactional id has another producer id")
        if rules.verify(known, batch.producer_id, batch.producer_epoch) is not None:
            return _FENCED
        if self._has(known, log):
            return None
        if not claimed.adds:
            error = ErrorName.TRANSACTION_ABORTABLE if claimed.is_abortable else rules.WRONG_STATE
            return Refused(error, _NOT_ADDED)
        added = add(self._state, self._overlay, known, [log.number], (), self._now_ms)
        if added.result is decide.TOO_MANY_PRODUCERS:
            # As of a producer without a transactional id: then idle ones are forgotten.
            return Refused(TOO_MANY_PRODUCERS, decide.TOO_MANY_PRODUCERS.message)
        if isinstance(added.result, Refused):
            return added.result
        self._note(added.records)
        return None

    def _note(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, AddedToTransaction):
                self._added.setdefault(record.producer_id, []).extend(record.numbers)
            else:
                self._begun.append(record)

    @property
    def records(self) -> list[MetadataRecord]:
        """What the batches add to transactions: a record for each that has begun, and one for the partitions
        of each."""
        added = [AddedToTransaction(producer_id, numbers, ()) for producer_id, numbers in self._added.items()]
        return [*self._begun, *added]

    def begins_at_zero(self, batch: CommitBatch) -> bool:
        """Whether a producer that is not known in the partition must begin with sequence 0: those of
        transaction version 2 have a new epoch in each transaction, so nothing of one can be missing."""
        claimed = self._of_batches.get(batch.start)
        return claimed is not None and claimed.adds and bool(batch.attributes & TRANSACTIONAL_BIT)

    def _has(self, known: Transaction, log: PartitionLog) -> bool:
        transactions, entry = self._state.part(Transactions), self._overlay.part(TransactionsOfEntry)
        return known.is_open and has_number(transactions, entry, known.producer_id, log.number)
