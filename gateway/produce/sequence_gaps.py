"""Gaps in the sequences of new producers (sans-I/O).

The ledger accepts any sequence of a producer that it does not know (as in Kafka, since its records may have
been deleted). When the first batch of a producer could not be stored, the batches right after it must not be
accepted before it arrives again: after them its sequence would be out of order for good.
"""

from typing import Final

from gateway.produce.accumulator import PendingBatch
from ledger.partitions.producers import MAX_SEQUENCE

MAX_GAPS: Final = 10_000


class SequenceGaps:
    """The first sequence, by partition, producer and epoch, that was refused although it was in order."""

    def __init__(self, max_gaps: int = MAX_GAPS) -> None:
        self._max_gaps = max_gaps
        self._expected: dict[tuple[int, int, int], int] = {}

    def __len__(self) -> int:
        return len(self._expected)

    def note(self, batch: PendingBatch) -> None:
        """This batch has certainly not been stored, and its producer may send it again."""
        header = batch.header
        if header.producer_id < 0 or header.producer_id in batch.log.producers:
            return
        key = (batch.log.number, header.producer_id, header.producer_epoch)
        expected = self._expected.get(key)
        if expected is None or is_after(expected, header.base_sequence):
            self._expected[key] = header.base_sequence
        if len(self._expected) > self._max_gaps:
            del self._expected[next(iter(self._expected))]

    def missing_before(self, batch: PendingBatch) -> int | None:
        """The sequence that has to come before this batch, or None if it may be stored."""
        header = batch.header
        key = (batch.log.number, header.producer_id, header.producer_epoch)
        expected = self._expected.get(key)
        if expected is None:
            return None
        if header.base_sequence == expected or header.producer_id in batch.log.producers:
            # From here on the ledger knows the producer, and checks its sequences itself.
            del self._expected[key]
            return None
        return expected if is_after(header.base_sequence, expected) else None


def is_after(sequence: int, other: int) -> bool:
    """Whether `sequence` comes after `other`, as they wrap after 2^31 - 1."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE >> 1
