"""Removes offsets that have expired by Kafka's rules (KIP-211), in bounded steps.

An offset expires the retention time after its commit, and in a group that has become empty the retention time
after that at the earliest. While a group has members, only offsets of topics that none of its consumers
subscribes to expire, and none during a rebalance. Groups without members and offsets are removed, and so are
offsets of deleted topics.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import structlog

from gateway.coordination.ledger import Ledger
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.describe import EMPTY, STABLE
from ledger.groups.requests import DrainOffsets, GroupGone, RemoveGroup, RemoveOffsets
from ledger.groups.state import BY_RETENTION, CommittedOffset, OffsetKey
from ledger.requests import Done, LedgerResult

log = structlog.get_logger(__name__)

SLICE_OFFSETS: Final = 1_000
"""Checked in one event-loop iteration, of all groups together, and removed by one request."""
UNITS_A_GROUP: Final = 3
"""What a group costs besides, in offsets that are checked."""
SUBMITTED_AT_ONCE: Final = 50
"""Requests that share journal entries, before their results are waited for: other steps of housekeeping wait
for this one, and a cluster may have very many groups."""
KEEP_OFFSETS: Final = 0
"""As the limit of RemoveGroup: a group is removed only if it has no offsets."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a group's offsets expire: not before `not_before_ms`, and never those of `read_topics`."""

    not_before_ms: int = 0
    read_topics: frozenset[str] = frozenset()

    def has_expired(
        self, committed: CommittedOffset, clock_ms: int, now_ms: int, retention_ms: int, doubted_ms: int
    ) -> bool:
        """`clock_ms` is the wall clock, by which clients set expiry times. `now_ms` is the time that the next
        commit would get: a commit may be later than `clock_ms` if the journal is ahead of the clock. Both may
        be ahead by `doubted_ms`."""
        if committed.expire_ms != BY_RETENTION:
            return clock_ms - doubted_ms >= committed.expire_ms
        began_ms = max(committed.committed_ms, self.not_before_ms)
        return (clock_ms if began_ms <= clock_ms else now_ms) - began_ms >= retention_ms + doubted_ms


class _Submitted(NamedTuple):
    """A request under way to remove offsets of a group."""

    group_id: str
    result: asyncio.Future[LedgerResult]


class OffsetExpiry:
    """Two steps of housekeeping: `apply` is for the long interval, `drain` for the short one."""

    def __init__(
        self,
        shard: Ledger,
        groups: GroupCoordinator,
        retention_ms: int,
        clock: Callable[[], int],
        wait_s: float,
        doubted_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """While time is in doubt, by `doubted_ms`, offsets expire so much later."""
        self._doubted_ms = doubted_ms
        self._shard = shard
        self._groups = groups
        self._retention_ms = retention_ms
        self._clock = clock
        self._wait_s = wait_s

    async def apply(self) -> int:
        """Remove what has expired. Returns the number of offsets removed."""
        submitted: list[_Submitted] = []
        try:
            expired = await self._expire(submitted)
        finally:
            _forget(submitted)
        await self._remove_unused()
        return expired

    async def drain(self) -> None:
        """Remove offsets of deleted topics, slice by slice."""
        while self._shard.state.groups.dead:
            result = await self._shard.ask(DrainOffsets(SLICE_OFFSETS), self._deadline())
            if not isinstance(result, Done) or result.count == 0:
                return

    async def _expire(self, submitted: list[_Submitted]) -> int:
        """The number removed. `submitted`: requests under way."""
        expired, left = 0, SLICE_OFFSETS
        for group_id in list(self._shard.state.groups.offsets):
            for keys in _slices(list(self._offsets(group_id)), SLICE_OFFSETS):
                if len(keys) > left:
                    await asyncio.sleep(0)
                    left = SLICE_OFFSETS
                left -= len(keys) + UNITS_A_GROUP
                due, before_ms = self._due(group_id, keys)
                if due:
                    # At once: the group may change in a later iteration of the event loop.
                    request = RemoveOffsets(group_id, due, before_ms)
                    submitted.append(_Submitted(group_id, self._shard.submit(request)))
                if len(submitted) == SUBMITTED_AT_ONCE:
                    expired += await self._removed(submitted)
        return expired + await self._removed(submitted)

    async def _removed(self, submitted: list[_Submitted]) -> int:
        """The number of offsets that these have removed, which are none under way any more."""
        async with asyncio.timeout_at(self._deadline()):
            results = await _all([result for _, result in submitted])
        counts = Counter[str]()
        for (group_id, _), result in zip(submitted, results, strict=True):
            counts[group_id] += result.count if isinstance(result, Done) else 0
        submitted.clear()
        for group_id, count in counts.items():
            if count:
                log.info("offsets.expired", group=group_id, offsets=count)
        return counts.total()

    def _due(self, group_id: str, keys: Sequence[OffsetKey]) -> tuple[list[OffsetKey], int]:
        """The keys that have expired, and the time before which all of them were committed: an offset that is
        committed again meanwhile stays."""
        rule = self._rule(group_id)
        state, clock_ms = self._shard.state, self._clock()
        now_ms, doubted_ms = max(clock_ms, self._shard.now_ms()), self._doubted_ms()
        if rule is None:
            return [], 0
        due, before_ms = [], 0
        offsets = self._offsets(group_id)
        for key in keys:
            committed = offsets.get(key)
            # A commit of the next entry may get the newest entry's time, and must not be removed.
            if committed is None or committed.committed_ms >= state.entry_time_ms:
                continue
            topic = state.topics.by_id.get(key[0])
            if topic is not None and topic.name in rule.read_topics:
                continue
            if rule.has_expired(committed, clock_ms, now_ms, self._retention_ms, doubted_ms):
                due.append(key)
                before_ms = max(before_ms, committed.committed_ms + 1)
        return due, before_ms

    def _rule(self, group_id: str) -> _Rule | None:
        """How the group's offsets expire; None while none of them may."""
        group = self._groups.listing(group_id)
        if group is None or not group.protocol_type:
            return _Rule() if group is None or group.state == EMPTY else None
        if group.state == EMPTY:
            stored = self._shard.state.groups.by_id.get(group_id)
            if stored is not None and stored.members:
                # It became empty just now, and the journal does not have the time yet.
                return None
            return _Rule(stored.changed_ms if stored is not None else 0)
        subscribed = self._groups.subscribed_topics(group_id)
        if group.state != STABLE or subscribed is None:
            return None
        return _Rule(read_topics=subscribed)

    async def _remove_unused(self) -> None:
        for ids in _slices(list(self._shard.state.groups.by_id), SUBMITTED_AT_ONCE):
            await _all(map(self._remove, filter(self._is_unused, ids)))
            await asyncio.sleep(0)

    async def _remove(self, group_id: str) -> None:
        result = await self._shard.ask(RemoveGroup(group_id, KEEP_OFFSETS), self._deadline())
        if isinstance(result, GroupGone) and result.left == 0:
            log.info("group.removed", group=group_id, reason="no members and no offsets")

    def _is_unused(self, group_id: str) -> bool:
        groups = self._shard.state.groups
        stored = groups.by_id.get(group_id)
        if stored is None or stored.members or group_id in groups.offsets:
            return False
        group = self._groups.listing(group_id)
        return group is not None and group.state == EMPTY

    def _offsets(self, group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
        return self._shard.state.groups.offsets.get(group_id, {})

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._wait_s


def _forget(submitted: Sequence[_Submitted]) -> None:
    """After a failure: nothing looks at these results any more, and asyncio reports errors that nothing has
    looked at."""
    for _, result in submitted:
        if not result.cancel() and not result.cancelled():
            result.exception()


async def _all(steps: Iterable[Awaitable[Item]]) -> list[Item]:
    """Run them concurrently. When all have ended, raises what the first failed one raised."""
    results = await asyncio.gather(*steps, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[at : at + size] for at in range(0, len(items), size))
