"""Lets go of offsets that nobody wants any more, by Kafka's rules (KIP-211), in bounded steps.

An offset expires so long after its commit, and in a group that has become empty also so long after that.
While a group lives only offsets of topics that none of its consumers reads expire, and none while it
rebalances.
Groups without members and offsets go, and so do offsets of deleted topics.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from gateway.coordination.shard import Shard
from gateway.groups.room import GroupsRoom
from gateway.groups.states import State
from ledger.groups import BY_RETENTION, CommittedOffset, OffsetKey
from ledger.requests import Done, DrainOffsets, GroupGone, RemoveGroup, RemoveOffsets

log = structlog.get_logger(__name__)

SLICE_OFFSETS: Final = 1_000
"""Looked at before other work gets its turn, and removed by one journal entry."""
GROUPS_AT_ONCE: Final = 50
"""What they let go of becomes one journal entry: other steps of housekeeping wait for this one, and a
cluster may have very many groups."""
KEEP_OFFSETS: Final = 0
"""As the limit of RemoveGroup: a group goes only if it has no offsets."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a group's offsets expire: not before `not_before_ms`, and never those of `read_topics`."""

    not_before_ms: int = 0
    read_topics: frozenset[str] = frozenset()

    def has_expired(self, committed: CommittedOffset, clock_ms: int, now_ms: int, retention_ms: int) -> bool:
        """`clock_ms` is what members set times by, `now_ms` what the next commit is stamped by: earlier ones
        may be from before the journal got ahead of the clock."""
        if committed.expire_ms != BY_RETENTION:
            return clock_ms >= committed.expire_ms
        begun_ms = max(committed.committed_ms, self.not_before_ms)
        return (clock_ms if begun_ms <= clock_ms else now_ms) - begun_ms >= retention_ms


class OffsetExpiry:
    """Two steps of housekeeping: `apply` now and then, `drain` often."""

    def __init__(
        self, shard: Shard, groups: GroupsRoom, retention_ms: int, clock: Callable[[], int], wait_s: float
    ) -> None:
        self._shard = shard
        self._groups = groups
        self._retention_ms = retention_ms
        self._clock = clock
        self._wait_s = wait_s

    async def apply(self) -> int:
        """Returns how many offsets were let go."""
        expired = 0
        for ids in _slices(list(self._shard.state.groups.offsets), GROUPS_AT_ONCE):
            expired += sum(await _all(map(self._expire, ids)))
        await self._remove_unused()
        return expired

    async def drain(self) -> None:
        """Forget offsets of deleted topics, slice by slice."""
        while self._shard.state.groups.dead:
            answer = await self._shard.ask(DrainOffsets(SLICE_OFFSETS), self._deadline())
            if not isinstance(answer, Done) or answer.count == 0:
                return

    async def _expire(self, group_id: str) -> int:
        expired = 0
        for keys in _slices(list(self._held(group_id)), SLICE_OFFSETS):
            due, before_ms = self._due(group_id, keys)
            if due:
                request = RemoveOffsets(group_id, due, before_ms)
                answer = await self._shard.ask(request, self._deadline())
                expired += answer.count if isinstance(answer, Done) else 0
            else:
                await asyncio.sleep(0)
        if expired:
            log.info("offsets.expired", group=group_id, offsets=expired)
        return expired

    def _due(self, group_id: str, keys: Sequence[OffsetKey]) -> tuple[list[OffsetKey], int]:
        """Those that have expired, and the time before which all of them were committed: one that is
        committed anew meanwhile stays."""
        rule = self._rule(group_id)
        state, clock_ms = self._shard.state, self._clock()
        now_ms = max(clock_ms, self._shard.now_ms())
        if rule is None:
            return [], 0
        due, before_ms = [], 0
        held = self._held(group_id)
        for key in keys:
            committed = held.get(key)
            # What comes is stamped no earlier than the newest entry, so it must be told from that one.
            if committed is None or committed.committed_ms >= state.entry_time_ms:
                continue
            topic = state.topics.by_id.get(key[0])
            if topic is not None and topic.name in rule.read_topics:
                continue
            if rule.has_expired(committed, clock_ms, now_ms, self._retention_ms):
                due.append(key)
                before_ms = max(before_ms, committed.committed_ms + 1)
        return due, before_ms

    def _rule(self, group_id: str) -> _Rule | None:
        """None while no offset of the group may expire."""
        view = self._groups.view(group_id)
        if view is None or not view.protocol_type:
            return _Rule() if view is None or view.state == State.EMPTY.value else None
        if view.state == State.EMPTY.value:
            stored = self._shard.state.groups.by_id.get(group_id)
            if stored is not None and stored.members:
                # It became empty just now, and the journal has not yet said when.
                return None
            return _Rule(stored.changed_ms if stored is not None else 0)
        subscribed = self._groups.subscribed_topics(group_id)
        if view.state != State.STABLE.value or subscribed is None:
            return None
        return _Rule(read_topics=subscribed)

    async def _remove_unused(self) -> None:
        for ids in _slices(list(self._shard.state.groups.by_id), GROUPS_AT_ONCE):
            await _all(map(self._remove, filter(self._is_unused, ids)))
            await asyncio.sleep(0)

    async def _remove(self, group_id: str) -> None:
        answer = await self._shard.ask(RemoveGroup(group_id, KEEP_OFFSETS), self._deadline())
        if isinstance(answer, GroupGone) and answer.left == 0:
            log.info("group.removed", group=group_id, reason="no members and no offsets")

    def _is_unused(self, group_id: str) -> bool:
        groups = self._shard.state.groups
        stored = groups.by_id.get(group_id)
        if stored is None or stored.members or group_id in groups.offsets:
            return False
        view = self._groups.view(group_id)
        return view is not None and view.state == State.EMPTY.value

    def _held(self, group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
        return self._shard.state.groups.offsets.get(group_id, {})

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._wait_s


async def _all(steps: Iterable[Awaitable[Item]]) -> list[Item]:
    """Take them at the same time. Raises what one of them raised, when all have ended."""
    results = await asyncio.gather(*steps, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[at : at + size] for at in range(0, len(items), size))
