"""Retention by retention.ms and retention.bytes, in journaled steps."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog

from gateway.coordination.ledger import Ledger
from gateway.housekeeping.producers import in_slices
from ledger.partitions.requests import DeleteRecords, LowWatermark
from ledger.partitions.retention import UNLIMITED, retention_offset
from ledger.partitions.state import PartitionLog
from ledger.topics.state import Topic

log = structlog.get_logger(__name__)

SLICE_RUNS = 2_000
AT_ONCE = 200
"""Partitions whose log start is raised together: they share a journal entry."""

Value = Callable[[str, Mapping[str, str]], str]
"""A topic config in force, by name and what is set."""


class _Due(NamedTuple):
    topic: Topic
    partition: int
    offset: int


class Retention:
    def __init__(
        self,
        shard: Ledger,
        value: Value,
        clock: Callable[[], int],
        wait_s: float,
        doubted_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """While time is in doubt, by `doubted_ms`, retention.ms is so much longer."""
        self._doubted_ms = doubted_ms
        self._shard = shard
        self._value = value
        self._clock = clock
        self._wait_s = wait_s

    async def apply(self) -> int:
        """Raise the log start of every partition that keeps too much. Returns how many were raised."""
        raised, due = 0, list[_Due]()
        for topic in list(self._shard.state.topics.by_id.values()):
            bounds = self._bounds(topic)
            async for partition in in_slices([log for log in topic.partitions.made if log is not None]):
                if bounds is None:
                    break
                offset = self._offset(partition, bounds)
                if offset > partition.log_start:
                    due.append(_Due(topic, partition.index, offset))
                    # Perhaps of very many runs.
                    await asyncio.sleep(0)
                if len(due) == AT_ONCE:
                    raised += await self._raise(due)
                    due = []
        return raised + await self._raise(due)

    def _bounds(self, topic: Topic) -> tuple[int, int] | None:
        """(retention.ms, retention.bytes), or None for a topic that keeps everything."""
        if "delete" not in self._value("cleanup.policy", topic.configs).split(","):
            return None
        retention_ms = int(self._value("retention.ms", topic.configs))
        retention_bytes = int(self._value("retention.bytes", topic.configs))
        if retention_ms < 0 and retention_bytes < 0:
            return None
        return max(retention_ms, UNLIMITED), max(retention_bytes, UNLIMITED)

    def _offset(self, partition: PartitionLog, bounds: tuple[int, int]) -> int:
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

    async def _raise(self, due: Sequence[_Due]) -> int:
        """In as few journal entries as possible."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        requests = [DeleteRecords(topic.topic_id, partition, offset) for topic, partition, offset in due]
        results = await asyncio.gather(*(self._shard.ask(request, deadline) for request in requests))
        raised = 0
        for (topic, partition, _), result in zip(due, results, strict=True):
            if isinstance(result, LowWatermark):
                log.info("retention.applied", topic=topic.name, partition=partition, log_start=result.offset)
                raised += 1
        return raised
