"""Topics, groups and transactional ids as tables: the lists of the console are cut from them.

A table is made on request, in slices, and serves all requests of the next second. It is forgotten when no
request has wanted it for a minute. Rates come from two tables of different age.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gateway.console.paging import in_order
from gateway.coordination.ledger import Ledger
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.totals import GroupTotals
from gateway.scheduling.slices import Slices
from ledger.groups.state import CommittedOffset, OffsetKey
from ledger.state import LedgerState
from ledger.topics.state import Topic
from ledger.transactions.state import Transactions
from ledger.types import TopicId

MAX_AGE_S: Final = 1.0
KEPT_S: Final = 60.0
RATE_WINDOW_S: Final = 10.0
"""A rate is taken over half of this time at least, once it is known for that long."""
OFFSETS_AT_ONCE: Final = 500

Row = TypeVar("Row")


class TopicRow(NamedTuple):
    name: str
    topic_id: TopicId
    partitions: int
    records: int
    """Offsets between log start and high watermark."""
    size_bytes: int
    ended: int
    """The sum of the high watermarks."""
    rate: float | None
    """Records a second; None before there is anything to compare with."""


class GroupRow(NamedTuple):
    name: str
    state: str
    protocol_type: str
    members: int
    topics: int
    lag: int


class TransactionRow(NamedTuple):
    name: str
    state: str
    producer_id: int
    partitions: int
    """Of the open transaction, as its groups."""
    groups: int
    timeout_ms: int
    open_ms: int | None
    """For how long the transaction has been open; None if none is."""


TOPIC_SORTS: Final[Mapping[str, Callable[[TopicRow], Any]]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "records": lambda row: row.records,
    "bytes": lambda row: row.size_bytes,
    "rate": lambda row: row.rate or 0.0,
}
GROUP_SORTS: Final[Mapping[str, Callable[[GroupRow], Any]]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "topics": lambda row: row.topics,
    "lag": lambda row: row.lag,
}

TRANSACTION_SORTS: Final[Mapping[str, Callable[[TransactionRow], Any]]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "partitions": lambda row: row.partitions,
    "open": lambda row: -1 if row.open_ms is None else row.open_ms,
}
"""By the name of a sort, what rows are sorted by."""


class Table(Generic[Row]):
    """Rows by name, as `make` made them last."""

    def __init__(self, make: Callable[[Slices], Awaitable[list[Row]]]) -> None:
        self._make = make
        self._rows: list[Row] | None = None
        self._made_at = 0.0
        self._making = asyncio.Lock()
        self._forgetting: asyncio.TimerHandle | None = None

    async def rows(self, slices: Slices) -> Sequence[Row]:
        loop = asyncio.get_running_loop()
        async with self._making:
            if self._rows is None or loop.time() - self._made_at > MAX_AGE_S:
                self._rows = await self._make(slices)
                self._made_at = loop.time()
            if self._forgetting is not None:
                self._forgetting.cancel()
            self._forgetting = loop.call_later(KEPT_S, self.forget)
            return self._rows

    def forget(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._rows = self._forgetting = None


class _Ends(NamedTuple):
    """High watermarks of topics at a loop time."""

    at: float
    of: dict[TopicId, int]


class TopicTable(Table[TopicRow]):
    """Every topic."""

    def __init__(self, shard: Ledger) -> None:
        super().__init__(self._rows_now)
        self._shard = shard
        self._older: _Ends | None = None
        self._newer: _Ends | None = None

    def forget(self) -> None:
        super().forget()
        self._older = self._newer = None

    async def _rows_now(self, slices: Slices) -> list[TopicRow]:
        topics = self._shard.state.topics
        now = asyncio.get_running_loop().time()
        before = self._older
        rows: list[TopicRow] = []
        for topic in [topics.by_name[name] for name in topics.names]:
            row = await self._row(topic, before, now, slices)
            rows.append(row)
        if self._newer is None or now - self._newer.at >= RATE_WINDOW_S / 2:
            self._older = self._newer or self._older
            self._newer = _Ends(now, {row.topic_id: row.ended for row in rows})
            if self._older is None:
                self._older = self._newer
        return rows

    async def _row(self, topic: Topic, before: _Ends | None, now: float, slices: Slices) -> TopicRow:
        records = size_bytes = ended = 0
        made = topic.partitions.made
        for at in range(0, len(made), OFFSETS_AT_ONCE):
            for log in made[at : at + OFFSETS_AT_ONCE]:
                if log is not None:
                    records += log.high_watermark - log.log_start
                    size_bytes += log.size_bytes
                    ended += log.high_watermark
            if slices.is_due(1 + min(len(made) - at, OFFSETS_AT_ONCE) // 4):
                await slices.next_slice()
        rate = None
        if before is not None and now > before.at:
            # A topic that was not there had no records.
            rate = max(0, ended - before.of.get(topic.topic_id, 0)) / (now - before.at)
        return TopicRow(topic.name, topic.topic_id, len(made), records, size_bytes, ended, rate)


class GroupTable(Table[GroupRow]):
    """Every group, by name."""

    def __init__(self, shard: Ledger, groups: GroupCoordinator) -> None:
        super().__init__(self._rows_now)
        self._shard = shard
        self._groups = groups
        self.totals = GroupTotals(groups)

    async def _rows_now(self, slices: Slices) -> list[GroupRow]:
        rows: list[GroupRow] = []
        ids = [group_id async for group_id in slices.paced(self._groups.ids())]
        for group_id in await in_order(ids, str, slices):
            group = self._groups.listing(group_id)
            if group is None:
                continue
            topics, lag = await self._lag(group_id, slices)
            members = self._groups.members_of(group_id)
            rows.append(GroupRow(group_id, group.state, group.protocol_type, members, topics, lag))
            if slices.is_due(3):
                await slices.next_slice()
        return rows

    async def _lag(self, group_id: str, slices: Slices) -> tuple[int, int]:
        """How many topics the group has offsets of, and its lag over all of them."""
        state = self._shard.state
        offsets = list(state.groups.offsets.get(group_id, {}).items())
        topics: set[TopicId] = set()
        lag = 0
        for at in range(0, len(offsets), OFFSETS_AT_ONCE):
            for key, committed in offsets[at : at + OFFSETS_AT_ONCE]:
                topics.add(key[0])
                lag += lag_of(state, key, committed) or 0
            if len(offsets) > OFFSETS_AT_ONCE and slices.is_due(OFFSETS_AT_ONCE):
                await slices.next_slice()
        return len(topics), lag


class TransactionTable(Table[TransactionRow]):
    """Every transactional id."""

    def __init__(self, shard: Ledger) -> None:
        super().__init__(self._rows_now)
        self._shard = shard

    async def _rows_now(self, slices: Slices) -> list[TransactionRow]:
        transactions = self._shard.state.part(Transactions)
        rows: list[TransactionRow] = []
        for known in list(transactions.by_id.values()):
            touched = transactions.open.get(known.producer_id)
            partitions = groups = 0
            open_ms = None
            if known.is_open:
                open_ms = max(0, self._shard.now_ms() - known.started_ms)
            if touched is not None:
                partitions, groups = len(touched.partitions), len(touched.groups)
            state = str(known.status)
            rows.append(
                TransactionRow(
                    known.transactional_id,
                    state,
                    known.producer_id,
                    partitions,
                    groups,
                    known.timeout_ms,
                    open_ms,
                )
            )
            if slices.is_due(1):
                await slices.next_slice()
        return rows


def lag_of(state: LedgerState, key: OffsetKey, committed: CommittedOffset) -> int | None:
    """Records after the committed offset that a consumer can still read; None for a partition that is
    gone."""
    topic_id, partition = key
    topic = state.topics.by_id.get(topic_id)
    if topic is None or not 0 <= partition < len(topic.partitions.made):
        return None
    log = topic.partitions.made[partition]
    return 0 if log is None else max(0, log.high_watermark - max(committed.offset, log.log_start))
