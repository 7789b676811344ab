"""Retention by retention.ms and retention.bytes, in journaled steps."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

import structlog

from gateway.coordination.ledger import Ledger
from gateway.housekeeping.draining import drain
from gateway.housekeeping.producers import in_slices
from ledger.partitions.requests import DeleteRecords, LowWatermark
from ledger.partitions.retention import UNLIMITED, RetainedFrom, retention_offset
from ledger.partitions.state import PartitionLog
from ledger.topics.state import Topic

log = structlog.get_logger(__name__)

SLICE_RUNS = 2_000
"""Of a partition, before other tasks and other partitions have their turn."""
AT_ONCE = 200
"""Partitions whose log start is raised together: they share a journal entry."""
CHECK_SLICE_S = 5.0
"""After this time a check waits for the next tick: the other steps of housekeeping have their turn."""

Value = Callable[[str, Mapping[str, str]], str]
"""A topic config in force, by name and what is set."""


class _Bounds(NamedTuple):
    retention_ms: int
    retention_bytes: int


class _Found(NamedTuple):
    topic: Topic
    partition: PartitionLog
    bounds: _Bounds


class _Due(NamedTuple):
    topic: Topic
    partition: PartitionLog
    retained: RetainedFrom


class _Check:
    """A check under way."""

    def __init__(self, epoch: int, found: AsyncIterator[_Found]) -> None:
        self.epoch = epoch
        """In which it has begun. What it has found may be of another state than that of a later one."""
        self.found = found
        """What is still to be visited."""
        self.limited = list[_Due]()
        """What is to be visited again after that, since more of it may be due."""


class Retention:
    def __init__(
        self,
        shard: Ledger,
        value: Value,
        clock: Callable[[], int],
        wait_s: float,
        doubted_ms: Callable[[], int] = lambda: 0,
        *,
        loop_time: Callable[[], float] | None = None,
    ) -> None:
        """While time is in doubt, by `doubted_ms`, retention.ms is so much longer."""
        self._loop_time = loop_time or asyncio.get_running_loop().time
        self._check: _Check | None = None
        self._doubted_ms = doubted_ms
        self._shard = shard
        self._value = value
        self._clock = clock
        self._wait_s = wait_s

    async def apply(self) -> int:
        """Raise the log start of every partition that keeps too much. Returns how many were raised.

        A slice of each partition at a time: one of which more is due is visited again after all others, until
        there is none. In between, what was raised is drained. After CHECK_SLICE_S, `go_on` does the rest. A
        check that is under way goes on: if a new one began in its place, the last partitions might never be
        visited.
        """
        if self._check is None or self._check.epoch != self._shard.state.epoch:
            self._check = _Check(self._shard.state.epoch, self._all())
        return await self.go_on()

    async def go_on(self) -> int:
        """With the check that is under way, if there is one. One that fails is over."""
        check, self._check = self._check, None
        if check is None or check.epoch != self._shard.state.epoch:
            return 0
        raised, until_s = set[int](), self._loop_time() + CHECK_SLICE_S
        while True:
            await drain(self._shard, self._loop_time, self._wait_s, until_s)
            is_late = self._loop_time() >= until_s
            if not is_late and await self._visit(check, raised, until_s):
                if not check.limited:
                    return len(raised)
                check.found, check.limited = self._again(check.limited), []
            if is_late or self._loop_time() >= until_s:
                self._check = check
                return len(raised)

    async def _visit(self, check: _Check, raised: set[int], until_s: float) -> bool:
        """Raise the log start of what the check has found, each by one slice. False: it is not all visited
        yet, but the time is up."""
        due = list[_Due]()
        async for topic, partition, bounds in check.found:
            retained = self._retained(partition, bounds)
            if retained.offset > partition.log_start:
                due.append(_Due(topic, partition, retained))
                # Perhaps of very many runs.
                await asyncio.sleep(0)
            is_late = self._loop_time() >= until_s
            if len(due) == AT_ONCE or is_late:
                check.limited += await self._raise(due, raised)
                due = []
            if is_late:
                return False
        check.limited += await self._raise(due, raised)
        return True

    async def _all(self) -> AsyncIterator[_Found]:
        for topic in list(self._shard.state.topics.by_id.values()):
            bounds = self._bounds(topic)
            if bounds is not None:
                async for partition in in_slices([one for one in topic.partitions.made if one is not None]):
                    yield _Found(topic, partition, bounds)

    async def _again(self, limited: Sequence[_Due]) -> AsyncIterator[_Found]:
        for topic, partition, _ in limited:
            # The topic may have other configs by now, or be gone.
            bounds = self._bounds(topic)
            if bounds is not None and not partition.deleted:
                yield _Found(topic, partition, bounds)

    def _bounds(self, topic: Topic) -> _Bounds | None:
        """None for a topic that keeps everything."""
        if "delete" not in self._value("cleanup.policy", topic.configs).split(","):
            return None
        retention_ms = int(self._value("retention.ms", topic.configs))
        retention_bytes = int(self._value("retention.bytes", topic.configs))
        if retention_ms < 0 and retention_bytes < 0:
            return None
        return _Bounds(max(retention_ms, UNLIMITED), max(retention_bytes, UNLIMITED))

    def _retained(self, partition: PartitionLog, bounds: _Bounds) -> RetainedFrom:
        by_number = self._shard.state.objects.by_number
        now_ms = self._clock()
        retention_ms, retention_bytes = bounds
        if retention_ms != UNLIMITED:
            # After the clock, which may have jumped with this reading.
            retention_ms += self._doubted_ms()
        return retention_offset(
            partition,
            retention_ms,
            retention_bytes,
            now_ms,
            SLICE_RUNS,
            lambda number: by_number[number].created_ms,
            max(0, self._shard.now_ms() - now_ms),
        )

    async def _raise(self, due: Sequence[_Due], raised: set[int]) -> list[_Due]:
        """In as few journal entries as possible. Adds the numbers of those that were raised, and returns
        those of which more may be due."""
        deadline = self._loop_time() + self._wait_s
        requests = [
            DeleteRecords(topic.topic_id, partition.index, retained.offset)
            for topic, partition, retained in due
        ]
        results = await asyncio.gather(*(self._shard.ask(request, deadline) for request in requests))
        limited = list[_Due]()
        for one, result in zip(due, results, strict=True):
            if not isinstance(result, LowWatermark):
                continue
            raised.add(one.partition.number)
            if one.retained.is_limited:
                limited.append(one)
            else:
                name, index = one.topic.name, one.partition.index
                log.info("retention.applied", topic=name, partition=index, log_start=result.offset)
        return limited
