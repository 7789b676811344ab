"""Transactional ids, the transactions that are open, and the offsets that wait for their end."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from ledger.groups.state import OFFSET_BYTES, OffsetKey
from ledger.requests import text_bytes

NO_EPOCH: Final = -1
NO_PRODUCER: Final = -1
NOT_STARTED: Final = -1
ORDER_OF_COMMITS: Final = 2**63 - 1
"""Of an offset that is committed at once: it overtakes all that pend."""
_ORDERS_OF_ENTRY: Final = 24
"""Bits: far more than an entry has offsets."""
EXHAUSTED_EPOCH: Final = 2**15 - 2
"""Epochs have 16 bits; the greatest is left for fencing."""


class Status(StrEnum):
    """Kafka's names. A transaction ends with one journal entry, so nothing is ever being prepared."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


class Transaction(NamedTuple):
    """All of a transactional id but its partitions and pending offsets.

    `last_epoch`: the epoch before this one, with which a producer may ask again for what it did not hear;
    NO_EPOCH if none may. `previous_producer_id`: of an id whose epochs were used up; NO_PRODUCER if the
    producer id is its first.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    last_epoch: int
    previous_producer_id: int
    timeout_ms: int
    status: Status
    started_ms: int
    """Entry time at which the newest transaction began; NOT_STARTED."""
    updated_ms: int
    """Entry time of the last change, which the expiry of the id is counted from."""

    @property
    def is_open(self) -> bool:
        return self.status is Status.ONGOING

    @property
    def is_exhausted(self) -> bool:
        """Whether its producer id has no further epoch for a producer."""
        return self.epoch >= EXHAUSTED_EPOCH


def group_units(group_id: str) -> int:
    """What a group counts as in `Transactions.touched`: ids have any length."""
    return 1 + len(group_id) // 64


class PendingOffset(NamedTuple):
    """An offset that is committed with its transaction. `order` grows with each; `is_overtaken`: an offset
    that was committed later is there already, so this one only makes readers wait."""

    offset: int
    leader_epoch: int
    metadata: str
    order: int
    is_overtaken: bool = False


PendingKey: TypeAlias = tuple[int, str, OffsetKey]
"""(producer id, group id, offset key)."""


@dataclass(slots=True)
class Open:
    """What the open transaction of one producer has touched."""

    partitions: dict[int, None] = field(default_factory=dict)
    """Numbers, in the order in which they were added."""
    groups: dict[str, dict[OffsetKey, PendingOffset]] = field(default_factory=dict)
    """By group; a group that was added has an entry even before its first offset."""


class Transactions:
    """Part of the state of a shard (`LedgerState.part`). Changed by `apply` of metadata records alone."""

    __slots__ = ("_next_order", "_waiting", "by_id", "by_producer", "open", "pending_bytes", "touched")

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self.by_producer: dict[int, str] = {}
        """Transactional ids by their present producer ids."""
        self.open: dict[int, Open] = {}
        """By producer id; exactly those of open transactions."""
        self.touched = 0
        """Partitions, groups and pending offsets of all open transactions; a long group id counts more."""
        self.pending_bytes = 0
        """Memory of the pending offsets, counted as that of committed ones is."""
        self._next_order = 0
        self._waiting: dict[str, dict[OffsetKey, dict[int, None]]] = {}
        """By group and offset key, the producers whose transactions have a pending offset."""

    def of_producer(self, producer_id: int) -> Transaction | None:
        name = self.by_producer.get(producer_id)
        return None if name is None else self.by_id[name]

    def put(self, transaction: Transaction) -> None:
        """Store a transaction in place of the one of its id."""
        known = self.by_id.get(transaction.transactional_id)
        if known is not None and known.producer_id != transaction.producer_id:
            self.by_producer.pop(known.producer_id, None)
        self.by_id[transaction.transactional_id] = transaction
        self.by_producer[transaction.producer_id] = transaction.transactional_id

    def remove(self, transactional_id: str) -> None:
        known = self.by_id.pop(transactional_id, None)
        if known is not None:
            self.by_producer.pop(known.producer_id, None)

    def opened(self, producer_id: int) -> Open:
        """What the open transaction of a producer has touched; it is open from here on."""
        found = self.open.get(producer_id)
        if found is None:
            found = self.open[producer_id] = Open()
        return found

    def close(self, producer_id: int) -> Open:
        """The transaction has ended. Returns what it had touched."""
        touched = self.open.pop(producer_id, None) or Open()
        self.touched -= len(touched.partitions) + sum(map(group_units, touched.groups))
        for group_id, offsets in touched.groups.items():
            for key, pending in offsets.items():
                self._no_longer_waits(group_id, key, producer_id)
                self._count(pending, -1)
        return touched

    def add(self, producer_id: int, numbers: Iterable[int], groups: Iterable[str]) -> None:
        """The transaction of this producer, which is open from here on, touches these partitions (numbers)
        and groups."""
        touched = self.opened(producer_id)
        for number in numbers:
            if number not in touched.partitions:
                touched.partitions[number] = None
                self.touched += 1
        for group_id in groups:
            self._add_group(touched, group_id)

    def _add_group(self, touched: Open, group_id: str) -> dict[OffsetKey, PendingOffset]:
        offsets = touched.groups.get(group_id)
        if offsets is None:
            offsets = touched.groups[group_id] = {}
            self.touched += group_units(group_id)
        return offsets

    def _count(self, pending: PendingOffset, times: int) -> None:
        self.touched += times
        self.pending_bytes += times * (OFFSET_BYTES + text_bytes(pending.metadata))

    def order_in(self, entry: int) -> int:
        """Of the next offset that pends since this entry: greater than that of all that pend."""
        return max(entry << _ORDERS_OF_ENTRY, self._next_order)

    def pend(self, producer_id: int, group_id: str, key: OffsetKey, pending: PendingOffset) -> None:
        """The transaction of this producer, which is open, will commit this offset."""
        offsets = self._add_group(self.open[producer_id], group_id)
        if key in offsets:
            self._count(offsets[key], -1)
        offsets[key] = pending
        self._count(pending, 1)
        self._waiting.setdefault(group_id, {}).setdefault(key, {})[producer_id] = None
        self._next_order = max(self._next_order, pending.order + 1)

    def overtake(self, group_id: str, key: OffsetKey, below: int) -> None:
        """An offset of this order was committed: those that pend since before are not, whatever happens to
        their transactions."""
        for producer_id in self._waiting.get(group_id, {}).get(key, ()):
            offsets = self.open[producer_id].groups[group_id]
            pending = offsets[key]
            if pending.order < below:
                offsets[key] = pending._replace(is_overtaken=True)

    def forget_offset(self, group_id: str, key: OffsetKey) -> None:
        """What pends of this offset is gone."""
        for producer_id, _, _ in self.waiting_of(group_id, key):
            self._count(self.open[producer_id].groups[group_id].pop(key), -1)
            self._no_longer_waits(group_id, key, producer_id)

    def forget_group(self, group_id: str) -> None:
        """The group is gone, with what pends of it."""
        for producer_id, _, key in self.waiting_of(group_id):
            self._count(self.open[producer_id].groups[group_id].pop(key), -1)
        self._waiting.pop(group_id, None)

    def is_waiting(self, group_id: str, key: OffsetKey | None = None) -> bool:
        """Whether an offset of the group, or the one of this key, waits for the end of a transaction."""
        waiting = self._waiting.get(group_id)
        return waiting is not None and (key is None or key in waiting)

    def waiting_groups(self) -> Collection[str]:
        """Groups with an offset that waits for the end of a transaction."""
        return self._waiting.keys()

    def waiting_of(self, group_id: str, key: OffsetKey | None = None) -> list[PendingKey]:
        """The offsets of a group, or those of this key, that wait for the end of a transaction."""
        waiting = self._waiting.get(group_id, {})
        keys = waiting if key is None else (key,)
        return [(producer_id, group_id, each) for each in keys for producer_id in waiting.get(each, ())]

    def waiting_keys(self) -> Iterator[PendingKey]:
        """All offsets that wait for the end of a transaction."""
        for group_id, keys in self._waiting.items():
            for key, producers in keys.items():
                for producer_id in producers:
                    yield producer_id, group_id, key

    def pending(self, key: PendingKey) -> PendingOffset | None:
        producer_id, group_id, offset_key = key
        touched = self.open.get(producer_id)
        return None if touched is None else touched.groups.get(group_id, {}).get(offset_key)

    def _no_longer_waits(self, group_id: str, key: OffsetKey, producer_id: int) -> None:
        keys = self._waiting[group_id]
        producers = keys[key]
        del producers[producer_id]
        if not producers:
            del keys[key]
        if not keys:
            del self._waiting[group_id]


class TransactionsOfEntry:
    """What was decided for the entry that is being filled (`Overlay.part`)."""

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction | None] = {}
        """Stored in this entry, or None if removed."""
        self.partitions: dict[int, dict[int, None]] = {}
        """By producer id, the partitions that were added in this entry."""
        self.groups: dict[int, dict[str, None]] = {}
        """The same for groups."""
        self.pending: dict[int, int] = {}
        """How many offsets pend by this entry, by producer id."""
        self.pending_groups: set[str] = set()
        """Their groups, also if the transaction has ended since."""
        self.closed: set[int] = set()
        """Producers whose transaction ended in this entry: what was added before counts no more."""

    def carried(self) -> "TransactionsOfEntry":
        """What the next entry begins with, where this one may not be applied yet. It has what batches have
        added, and nothing else: no other request of transactions is decided before an entry is applied. Once
        it is applied, that is in the state as well, and says the same."""
        assert not self.closed
        copied = TransactionsOfEntry()
        copied.by_id = dict(self.by_id)
        copied.partitions = {producer: dict(numbers) for producer, numbers in self.partitions.items()}
        copied.groups = {producer: dict(groups) for producer, groups in self.groups.items()}
        return copied

    def close(self, producer_id: int) -> None:
        self.partitions.pop(producer_id, None)
        self.groups.pop(producer_id, None)
        self.pending.pop(producer_id, None)
        self.closed.add(producer_id)


def numbers_of(
    transactions: Transactions, entry: TransactionsOfEntry, producer_id: int
) -> Mapping[int, None]:
    """The partitions of the open transaction of a producer, with those that this entry adds."""
    added = entry.partitions.get(producer_id, {})
    if producer_id in entry.closed:
        return added
    touched = transactions.open.get(producer_id)
    if touched is None:
        return added
    return {**touched.partitions, **added} if added else touched.partitions


def has_number(transactions: Transactions, entry: TransactionsOfEntry, producer_id: int, number: int) -> bool:
    """Whether a partition was added to the open transaction of a producer. Unlike `numbers_of` it costs the
    same whatever the transaction has: each batch of an entry wants to know."""
    if number in entry.partitions.get(producer_id, ()):
        return True
    touched = transactions.open.get(producer_id)
    return producer_id not in entry.closed and touched is not None and number in touched.partitions


def number_count(transactions: Transactions, entry: TransactionsOfEntry, producer_id: int) -> int:
    """How many partitions the open transaction of a producer has at most: one may be both in the state and
    in the entry, if that has begun with what the entry before it has added."""
    touched = None if producer_id in entry.closed else transactions.open.get(producer_id)
    before = 0 if touched is None else len(touched.partitions)
    return before + len(entry.partitions.get(producer_id, ()))


def has_group(
    transactions: Transactions, entry: TransactionsOfEntry, producer_id: int, group_id: str
) -> bool:
    """Whether a group was added to the open transaction of a producer."""
    if group_id in entry.groups.get(producer_id, {}):
        return True
    touched = transactions.open.get(producer_id)
    return producer_id not in entry.closed and touched is not None and group_id in touched.groups


def pending_count(transactions: Transactions, entry: TransactionsOfEntry, producer_id: int) -> int:
    """How many offsets pend at most for the open transaction of a producer: those of this entry may replace
    others."""
    touched = None if producer_id in entry.closed else transactions.open.get(producer_id)
    before = 0 if touched is None else sum(map(len, touched.groups.values()))
    return before + entry.pending.get(producer_id, 0)
