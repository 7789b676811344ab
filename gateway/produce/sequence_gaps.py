"""Gaps in the sequences of new producers (sans-I/O).

The ledger accepts any sequence of a producer that it does not know (as in Kafka, since its records may have
been deleted). When the first batch of a producer could not be stored, the batches right after it must not be
accepted before it arrives again: after them its sequence would be out of order for good. So each commit says
with which sequence such a producer has to begin (docs/decisions/0022).
"""

from typing import Final

from gateway.produce.accumulator import PendingBatch
from ledger.partitions.producers import is_after
from ledger.partitions.requests import ProducerKey

MAX_GAPS: Final = 10_000


class SequenceGaps:
    """The first sequence, by partition, producer and epoch, that was refused although it was in order."""

    def __init__(self, max_gaps: int = MAX_GAPS) -> None:
        self._max_gaps = max_gaps
        self.first_sequences: dict[ProducerKey, int] = {}

    def note(self, batch: PendingBatch) -> None:
        """This batch was not stored, or perhaps not, and its producer may send it again."""
        header = batch.header
        if header.producer_id < 0 or header.producer_id in batch.log.producers:
            return
        note_first(self.first_sequences, batch)
        if len(self.first_sequences) > self._max_gaps:
            del self.first_sequences[next(iter(self.first_sequences))]

    def close(self, batch: PendingBatch) -> None:
        """This batch is committed: from here on the ledger knows its producer, and checks its sequences."""
        self.first_sequences.pop(producer_key(batch), None)


def producer_key(batch: PendingBatch) -> ProducerKey:
    log, header = batch.log, batch.header
    return log.topic_id, log.index, header.producer_id, header.producer_epoch


def note_first(first_sequences: dict[ProducerKey, int], batch: PendingBatch) -> None:
    """Its producer has to begin with this batch, unless one with a lower sequence is noted already."""
    key, sequence = producer_key(batch), batch.header.base_sequence
    first = first_sequences.get(key)
    if first is None or is_after(first, sequence):
        first_sequences[key] = sequence
