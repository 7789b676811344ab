"""Retention by retention.ms and retention.bytes, in journaled steps."""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from gateway.coordination.ledger import Ledger
from ledger.partitions.requests import DeleteRecords, LowWatermark
from ledger.partitions.retention import UNLIMITED, retention_offset
from ledger.topics.state import Topic

log = structlog.get_logger(__name__)

SLICE_RUNS = 2_000
YIELD_EVERY = 500
"""Partitions that are checked before other tasks run."""

Value = Callable[[str, Mapping[str, str]], str]
"""A topic config in force, by name and what is set."""


class Retention:
    def __init__(self, shard: Ledger, value: Value, clock: Callable[[], int], wait_s: float) -> None:
        self._shard = shard
        self._value = value
        self._clock = clock
        self._wait_s = wait_s

    async def apply(self) -> int:
        """Raise the log start of every partition that keeps too much. Returns how many were raised."""
        raised = checked = 0
        for topic in list(self._shard.state.topics.by_id.values()):
            bounds = self._bounds(topic)
            for partition in range(len(topic.partitions)) if bounds is not None else ():
                assert bounds is not None
                raised += await self._apply_to(topic, partition, bounds)
                checked += 1
                if checked % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        return raised

    def _bounds(self, topic: Topic) -> tuple[int, int] | None:
        """(retention.ms, retention.bytes), or None for a topic that keeps everything."""
        if "delete" not in self._value("cleanup.policy", topic.configs).split(","):
            return None
        retention_ms = int(self._value("retention.ms", topic.configs))
        retention_bytes = int(self._value("retention.bytes", topic.configs))
        if retention_ms < 0 and retention_bytes < 0:
            return None
        return max(retention_ms, UNLIMITED), max(retention_bytes, UNLIMITED)

    async def _apply_to(self, topic: Topic, partition: int, bounds: tuple[int, int]) -> int:
        ledger_log = topic.partitions[partition]
        by_number = self._shard.state.objects.by_number
        now_ms = self._clock()
        offset = retention_offset(
            ledger_log,
            *bounds,
            now_ms,
            SLICE_RUNS,
            lambda number: by_number[number].created_ms,
            max(0, self._shard.now_ms() - now_ms),
        )
        if offset <= ledger_log.log_start:
            return 0
        request = DeleteRecords(topic.topic_id, partition, offset)
        result = await self._shard.ask(request, asyncio.get_running_loop().time() + self._wait_s)
        if not isinstance(result, LowWatermark):
            return 0
        log.info("retention.applied", topic=topic.name, partition=partition, log_start=result.offset)
        return 1
