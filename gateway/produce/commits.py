"""Batches as a store and the ledger get them (sans-I/O)."""

from collections.abc import Mapping, Sequence

from gateway.produce.accumulator import PendingBatch
from ledger.partitions.requests import CommitBatch, ProducerTransaction
from ledger.types import DraftBatch, Placement


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
    found = {
        start: transaction
        for pending, start in zip(batches, starts, strict=True)
        if (transaction := pending.completion.transaction) is not None
    }
    return found or None
