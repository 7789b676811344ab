"""Requests about transactions, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from ledger.groups.records import OFFSET, OFFSET_KEY
from ledger.groups.state import OffsetRow
from ledger.records import FRAME
from ledger.requests import SMALL, UTF8
from ledger.transactions.rules import Expected
from ledger.types import TopicId

MAX_PARTITIONS: Final = 2_000
"""Of one transaction: all get their markers with one journal entry, and an entry must be applied at once."""
MAX_GROUPS: Final = 1_000
"""Of one transaction."""
MAX_PENDING: Final = 2_000
"""Offsets of one transaction."""
MAX_TOUCHED: Final = 4_000_000
"""Partitions, groups and pending offsets of all open transactions, about 100 bytes each."""
WORK_OF_ONE: Final = 4
"""Of any of these requests, however little it changes."""
WORK_OF_END: Final = 500
"""Of an end before it is decided, which finds out what is open (`Decision.work`): twice as much at most."""
MARKS_A_UNIT: Final = 4
"""How many partitions are marked in the time in which a batch is applied."""
_STORED: Final = 2 * SMALL


class TopicPartition(NamedTuple):
    """A partition as requests name it."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class InitTransactionalId:
    """Begin a new epoch of a transactional id (InitProducerId), and abort what is open of it.

    Result: ProducerEpoch; Refused with PRODUCER_FENCED.
    """

    transactional_id: str
    timeout_ms: int
    expected: Expected | None = None
    """What the producer believes to be; None: it is a new one."""

    work: ClassVar[int] = WORK_OF_END

    @property
    def weight(self) -> int:
        return 4 * _STORED + 2 * UTF8 * len(self.transactional_id)


class ProducerEpoch(NamedTuple):
    """With what a producer goes on. `aborted`: whether that was at the cost of an open transaction.
    `ended_before`: nothing was open that EndTransaction could end, as it came for the second time, or after
    nothing."""

    producer_id: int
    epoch: int
    aborted: bool = False
    ended_before: bool = False


@dataclass(frozen=True, slots=True)
class AddToTransaction:
    """Add partitions and groups to the transaction of a producer, which begins with them unless it is open.

    Result: Done(how many are new); Refused with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION, or TRANSACTION_ABORTABLE if they are too many.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Sequence[TopicPartition] = ()
    groups: Sequence[str] = ()

    @property
    def work(self) -> int:
        return WORK_OF_ONE + (len(self.partitions) + len(self.groups)) // MARKS_A_UNIT

    @property
    def weight(self) -> int:
        names = len(self.transactional_id) + sum(map(len, self.groups))
        return 2 * _STORED + UTF8 * names + 4 * len(self.partitions) + 4 * len(self.groups)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Commit or abort. `bumps`: the client is of transaction version 2, and goes on with a new epoch.

    Result: ProducerEpoch; Refused with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or INVALID_TXN_STATE.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    bumps: bool

    work: ClassVar[int] = WORK_OF_END

    @property
    def weight(self) -> int:
        return 3 * _STORED + UTF8 * len(self.transactional_id)


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """Abort the transaction of this producer and epoch that began at `started_ms` (entry time), and fence it,
    if it is still open: it took longer than it may. Another one may have the same epoch. Result: Done(0 or
    1)."""

    transactional_id: str
    producer_id: int
    epoch: int
    started_ms: int

    work: ClassVar[int] = WORK_OF_END

    @property
    def weight(self) -> int:
        return 2 * _STORED + UTF8 * len(self.transactional_id)


@dataclass(frozen=True, slots=True)
class PendOffsets:
    """Commit offsets of a group with the transaction of a producer (TxnOffsetCommit). `adds`: a group that
    was not added is, and the transaction begins with it; else it is refused.

    Result: `OffsetsStored`; Refused with INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE.
    """

    group_id: str
    transactional_id: str
    producer_id: int
    epoch: int
    rows: Sequence[OffsetRow]
    adds: bool

    @property
    def work(self) -> int:
        return WORK_OF_ONE + len(self.rows)

    @property
    def weight(self) -> int:
        chars = (
            len(self.group_id) + len(self.transactional_id) + sum([len(row.metadata) for row in self.rows])
        )
        return 3 * _STORED + UTF8 * chars + (OFFSET.size + OFFSET_KEY.size) * len(self.rows)


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """End what a producer has open in these partitions, whatever is known of its transactional id: an
    operator frees those that hang (WriteTxnMarkers). `bumps`: the marker is of transaction version 2, so its
    epoch is a new one where something is open.

    Result: `MarkersWritten`.
    """

    producer_id: int
    epoch: int
    is_commit: bool
    partitions: Sequence[TopicPartition]
    bumps: bool = False

    @property
    def work(self) -> int:
        return len(self.partitions)

    @property
    def weight(self) -> int:
        return SMALL + 4 * len(self.partitions)


class MarkersWritten(NamedTuple):
    """Of each partition in request order, why it has no marker; None: it has one."""

    results: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class ExpireTransactionalIds:
    """Forget up to `limit` ids that were not used since `before_ms`, and have no open transaction.

    Result: Done.
    """

    before_ms: int
    limit: int
    names: Sequence[str]
    """Those that are looked at: the caller has found out which, in slices."""

    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return SMALL + sum([FRAME.size + UTF8 * len(name) for name in self.names])
