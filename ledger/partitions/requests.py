"""Requests about offsets, runs and producers, and their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from ledger.objects.state import Origin
from ledger.objects.uploads import Upload
from ledger.partitions.records import BATCH, RUN
from ledger.records import FRAME
from ledger.requests import SMALL, UTF8, Refused
from ledger.types import DraftBatch, Placement, TopicId


class CommitBatch(NamedTuple):
    """One batch of a stored draft, and what the ledger needs of its header. A named tuple, as one is made for
    every batch."""

    topic_id: TopicId
    partition: int
    start: int
    size: int
    record_count: int
    max_timestamp: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class ProducerTransaction(NamedTuple):
    """What a Produce request says of the transaction of its producer. `adds`: the client is of transaction
    version 2, whose partitions are added by their first batch. `is_abortable`: it takes TRANSACTION_ABORTABLE
    for the refusal of a partition that was not added."""

    transactional_id: str
    adds: bool
    is_abortable: bool


ProducerKey: TypeAlias = tuple[TopicId, int, int, int]
"""(topic id, partition, producer id, producer epoch)."""


class CommitFile(msgspec.Struct, frozen=True):
    """Number the batches of one object (KIP-1164 DisklessCommitFile).

    `origin`: of an object whose locator carries no creation time, or that is no WAL object. `upload`: which
    draft of its uploader it is, so that the ledger need not keep the results of settled ones.
    """

    locator: str
    object_bytes: int
    batches: Sequence[CommitBatch]
    first_sequences: Mapping[ProducerKey, int] | None = None
    """Of producers with batches in drafts before this one that are not known to be committed: the lowest
    sequence of those. A producer that the ledger does not know must not begin after it. Never journaled."""
    origin: Origin | None = None
    upload: Upload | None = None
    transactions: Mapping[int, ProducerTransaction] | None = None
    """By `CommitBatch.start`, of each batch in a transaction: two requests may name the same producer."""

    @property
    def weight(self) -> int:
        own = FRAME.size + 2 * SMALL + 4 * len(self.locator) + len(self.batches) * (RUN.size + BATCH.size)
        return own + transactions_weight(self.transactions, len(self.batches))

    @property
    def work(self) -> int:
        return len(self.batches)


class CommitPlaced(msgspec.Struct, frozen=True):
    """Number the batches of a draft that is appended with the entry of this commit (`Journal.place`).

    Unlike a `CommitFile` it is decided once, and never again: until its entry is durable its batches are
    nowhere. So no results are kept of it for repeats, and no age of its object refuses it.
    """

    locator: str
    object_bytes: int
    batches: Sequence[CommitBatch]
    first_sequences: Mapping[ProducerKey, int] | None = None
    """As of `CommitFile`."""
    transactions: Mapping[int, ProducerTransaction] | None = None
    """As of `CommitFile`."""

    @property
    def weight(self) -> int:
        return placed_weight(len(self.batches)) + transactions_weight(self.transactions, len(self.batches))

    @property
    def work(self) -> int:
        return len(self.batches)


def transactions_weight(transactions: Mapping[int, ProducerTransaction] | None, batches: int) -> int:
    """Journal bytes that commits of this many batches need for their transactions at most: each may begin,
    and each batch may add its partition."""
    if not transactions:
        return 0
    return sum(map(transaction_weight, set(transactions.values()))) + SMALL * batches


def transaction_weight(transaction: ProducerTransaction) -> int:
    """Journal bytes with which a transaction begins."""
    return 2 * SMALL + UTF8 * len(transaction.transactional_id)


PLACED_LOCATOR_BYTES: Final = 128
"""More than the locator of a log file or an entry has."""


def placed_weight(batches: int) -> int:
    """Journal bytes that a draft of so many batches needs at most."""
    return FRAME.size + 2 * SMALL + PLACED_LOCATOR_BYTES + batches * (RUN.size + BATCH.size)


class DraftSource(Protocol):
    """A draft whose batches are taken when its entry is filled: until then it may get more of them.

    The calls come in this order, in one iteration of the event loop: `take`; then `not_placed`, or `placed`
    and `decided`. None of them completes a request.
    """

    @property
    def batches(self) -> int:
        """How many `take` would return at most."""
        ...

    def take(self) -> Sequence[DraftBatch]:
        """The draft, which gets no further batches. Empty: there is none any more, and nothing follows."""
        ...

    @property
    def transactions_weight(self) -> int:
        """Of what was taken, journal bytes that its transactions need at most."""
        ...

    def not_placed(self) -> None:
        """The journal does not take it: it goes to the segment store, and is committed from there."""
        ...

    def placed(self, placement: Placement) -> CommitPlaced:
        """Where it will be; returns the request that is decided."""
        ...

    def decided(self, result: "FileCommit") -> None:
        """What its result will be if the entry becomes durable."""
        ...


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """Append a draft with the next entry, and number its batches. Decided as the `CommitPlaced` that it
    becomes when the entry is filled."""

    source: DraftSource

    @property
    def weight(self) -> int:
        return placed_weight(self.source.batches)

    @property
    def work(self) -> int:
        return self.source.batches


class Committed(NamedTuple):
    """`duplicate`: these offsets were given to the same batch before."""

    base_offset: int
    log_start: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class FileCommit:
    """One result a batch, in request order."""

    results: Sequence[Committed | Refused]


@dataclass(frozen=True, slots=True)
class StaleObject:
    """The object is below the orphan floor or closed: store the draft again under a new key."""


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Raise the log start offset; offset -1 means the high watermark."""

    topic_id: TopicId
    partition: int
    offset: int
    weight: int = SMALL
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class LowWatermark:
    offset: int


@dataclass(frozen=True, slots=True)
class ReserveProducerIds:
    count: int
    weight: int = SMALL
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Reserved:
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class DrainRuns:
    """Release up to `limit` runs that can no longer be read."""

    limit: int
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return SMALL * max(self.limit, 1)


@dataclass(frozen=True, slots=True)
class ExpireProducers:
    """Forget up to `limit` producers that have been silent since before `before_ms`, or since a time between
    `ahead_of_ms` and `ahead_before_ms`: of a journal that is ahead of the clock, such times are too."""

    before_ms: int
    limit: int
    partitions: Sequence[int]
    """Numbers of those that are looked at: the caller has found out which, in slices."""
    ahead_of_ms: int = 0
    ahead_before_ms: int = 0

    def has_expired(self, last_ms: int) -> bool:
        return last_ms < self.before_ms or self.ahead_of_ms < last_ms < self.ahead_before_ms

    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return SMALL + 12 * self.limit


@dataclass(frozen=True, slots=True)
class ForgetProducers:
    """Forget those of these (partition number, producer id) that have been silent for `SILENT_MS`."""

    pairs: Sequence[tuple[int, int]]
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return SMALL + 12 * len(self.pairs)
