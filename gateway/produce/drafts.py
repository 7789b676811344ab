"""Drafts on their way to the ledger, and what each commit says of those before it (sans-I/O).

Commits are handed over in the order of their drafts, several at a time, without waiting for the result of
each (docs/decisions/0022 has all interleavings). While a draft is under way it is not known whether its
batches will be committed, so a later commit names the producers that it shares with them; and of a draft
whose object was too old nothing is stored again that a later one has overtaken.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from gateway.produce.accumulator import PendingBatch
from gateway.produce.sequence_gaps import SequenceGaps, note_first
from gateway.telemetry.traces import DraftTrace
from ledger.partitions.producers import is_after
from ledger.partitions.requests import ProducerKey


class Draft:
    """Batches that are stored in one object and committed together."""

    __slots__ = ("_first_sequences", "batches", "has_passed", "number", "on_passed", "size", "trace")

    def __init__(self, number: int, batches: list[PendingBatch]) -> None:
        self.number = number
        """Counted from 1 by the process (`ledger.objects.uploads`)."""
        self.batches = batches
        self.size = sum([len(batch.data) for batch in batches])
        """Bytes that it began with."""
        self.has_passed = False
        """Whether the next draft may be handed over."""
        self.on_passed: Callable[[], None] | None = None
        """Of the next draft, if that waits."""
        self.trace: DraftTrace | None = None
        """If any of its requests is sampled."""
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


Key = TypeVar("Key")

_Shared: TypeAlias = tuple[int, int]
"""Of the drafts that were handed over and have something in common: what counts of them all, and how many
they are. Both stay until the last of them has its results."""


class HandedOver:
    """Drafts that were handed over to the ledger. The service removes one when all its batches have their
    results, and those that failed are noted as gaps.

    A draft costs as much as it has batches, however many others are under way.
    """

    def __init__(self, gaps: SequenceGaps) -> None:
        self._gaps = gaps
        self._partitions: dict[Draft, set[int]] = {}
        """Of each draft, as it was when it was handed over first: it may lose batches later."""
        self._producers: dict[ProducerKey, _Shared] = {}
        """The lowest sequence."""
        self._newest: dict[int, _Shared] = {}
        """By number of the partition, the number of the newest draft."""

    def add(self, draft: Draft) -> Mapping[ProducerKey, int] | None:
        """This draft is being handed over, for the first time or again. Returns `CommitFile.first_sequences`:
        of the producers that it shares with another one, or whose batch failed before."""
        own, producers, gaps = draft.first_sequences(), self._producers, self._gaps.first_sequences
        # A draft shares nothing with itself.
        others = 1 if draft in self._partitions else 0
        known = {
            key: shared[0] for key in own if (shared := producers.get(key)) is not None and shared[1] > others
        }
        if gaps:
            for key in own.keys() & gaps.keys():
                if key not in known or is_after(known[key], gaps[key]):
                    known[key] = gaps[key]
        if draft not in self._partitions:
            self._count(draft)
        return known or None

    def remove(self, draft: Draft) -> None:
        """All its batches have their results. Nothing happens if it was never handed over."""
        partitions = self._partitions.pop(draft, None)
        if partitions is not None:
            _remove(self._newest, partitions)
            _remove(self._producers, draft.first_sequences())

    def has_overtaken(self, draft: Draft, partition: int) -> bool:
        """Whether a later draft with batches of the partition of this number was handed over. `draft` was
        handed over itself."""
        newest, _ = self._newest.get(partition, (draft.number, 0))
        return newest > draft.number

    def _count(self, draft: Draft) -> None:
        partitions = self._partitions[draft] = {batch.log.number for batch in draft.batches}
        newest, producers = self._newest, self._producers
        for number in partitions:
            # Drafts are handed over in the order of their numbers.
            _, drafts = newest.get(number, (0, 0))
            newest[number] = (draft.number, drafts + 1)
        for key, sequence in draft.first_sequences().items():
            first, drafts = producers.get(key, (sequence, 0))
            producers[key] = (sequence if is_after(first, sequence) else first, drafts + 1)


def _remove(shared: dict[Key, _Shared], keys: Iterable[Key]) -> None:
    for key in keys:
        common, drafts = shared[key]
        if drafts > 1:
            shared[key] = (common, drafts - 1)
        else:
            del shared[key]
