"""Drafts on their way to the ledger, and what each commit says of those before it (sans-I/O).

Commits are handed over in the order of their drafts, several at a time, without waiting for the result of
each (docs/decisions/0022 has all interleavings). While a draft is under way it is not known whether its
batches will be committed, so a later commit names the producers that it shares with them; and of a draft
whose object was too old nothing is stored again that a later one has overtaken.
"""

from collections.abc import Callable, Mapping

from gateway.produce.accumulator import PendingBatch
from gateway.produce.sequence_gaps import SequenceGaps, note_first
from ledger.partitions.producers import is_after
from ledger.partitions.requests import ProducerKey


class Draft:
    """Batches that are stored in one object and committed together."""

    __slots__ = ("_first_sequences", "batches", "has_passed", "number", "on_passed", "overtaken")

    def __init__(self, number: int, batches: list[PendingBatch]) -> None:
        self.number = number
        """Counted from 1 by the process (`ledger.objects.uploads`)."""
        self.batches = batches
        self.has_passed = False
        """Whether the next draft may be handed over."""
        self.on_passed: Callable[[], None] | None = None
        """Of the next draft, if that waits."""
        self.overtaken: set[int] = set()
        """Numbers of partitions of which a later draft was handed over."""
        self._first_sequences: dict[ProducerKey, int] | None = None

    def pass_turn(self) -> None:
        """The next draft may be handed over. May be called again."""
        self.has_passed = True
        if self.on_passed is not None:
            self.on_passed()

    def first_sequences(self) -> Mapping[ProducerKey, int]:
        """The lowest sequence of each idempotent producer and partition that it began with."""
        if self._first_sequences is None:
            self._first_sequences = {}
            for batch in self.batches:
                if batch.header.producer_id >= 0:
                    note_first(self._first_sequences, batch)
        return self._first_sequences


class HandedOver:
    """Drafts that were handed over to the ledger. The service removes one when all its batches have their
    results, and those that failed are noted as gaps."""

    def __init__(self, gaps: SequenceGaps) -> None:
        self._gaps = gaps
        self.drafts: dict[Draft, None] = {}

    def add(self, draft: Draft) -> Mapping[ProducerKey, int] | None:
        """This draft is being handed over, for the first time or again. Returns `CommitFile.first_sequences`:
        of the producers that it shares with another one, or whose batch failed before."""
        others = [other for other in self.drafts if other is not draft]
        self.drafts[draft] = None
        if others:
            numbers = {batch.log.number for batch in draft.batches}
            for other in others:
                other.overtaken |= numbers
        gaps = self._gaps.first_sequences
        if not others and not gaps:
            return None
        known: dict[ProducerKey, int] = {}
        own = draft.first_sequences()
        for sequences in (gaps, *[other.first_sequences() for other in others]):
            for key in own.keys() & sequences.keys():
                if key not in known or is_after(known[key], sequences[key]):
                    known[key] = sequences[key]
        return known or None
