"""Batches as a store and the ledger get them (sans-I/O)."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.produce.accumulator import PendingBatch
from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.partitions.requests import CommitBatch, ProducerTransaction
from ledger.types import DraftBatch, Placement

_OF_COORDINATOR: Final = frozenset(
    {
        ErrorName.INVALID_REQUEST,
        ErrorName.INVALID_PRODUCER_ID_MAPPING,
        ErrorName.INVALID_PRODUCER_EPOCH,
        ErrorName.INVALID_TXN_STATE,
        ErrorName.TRANSACTION_ABORTABLE,
    }
)
"""Of a transactional batch: the coordinator of its transaction is requested before the log."""


def draft_batches(batches: Sequence[PendingBatch]) -> list[DraftBatch]:
    """As they are written."""
    draft = []
    for pending in batches:
        header = pending.header
        draft.append(
            DraftBatch(
                pending.log.topic_id,
                pending.log.index,
                pending.data,
                header.record_count,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            )
        )
    return draft


def commit_batches(batches: Sequence[PendingBatch], placement: Placement) -> list[CommitBatch]:
    """As they are committed."""
    commit = []
    for pending, start in zip(batches, placement.starts, strict=True):
        header = pending.header
        max_timestamp = pending.append_time_ms if pending.append_time_ms >= 0 else header.max_timestamp
        commit.append(
            CommitBatch(
                pending.log.topic_id,
                pending.log.index,
                start,
                len(pending.data),
                header.record_count,
                max_timestamp,
                header.attributes,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            )
        )
    return commit


def transactions_of(
    batches: Sequence[PendingBatch], starts: Sequence[int]
) -> Mapping[int, ProducerTransaction] | None:
    """`CommitFile.transactions` of these batches, which begin there in their object."""
    found = dict[int, ProducerTransaction]()
    for pending, start in zip(batches, starts, strict=True):
        transaction = pending.completion.transaction
        if transaction is not None:
            found[start] = transaction
    return found or None


def is_found_at_log(pending: PendingBatch, error: ErrorName) -> bool:
    """Whether a broker finds this error at the log, whose start its response then has. Sequences and epochs
    are checked there; a deleted partition has none."""
    if pending.header.attributes & TRANSACTIONAL_BIT and error in _OF_COORDINATOR:
        return False
    return not error.startswith("UNKNOWN_")
