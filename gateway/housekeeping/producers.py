"""Makes room for new producers where `limits.producers` or `limits.partition_producers` are nearly used up.

A producer that has been silent for a quarter of an hour may be forgotten, the longest silent first. What goes
is decided by the machine, by the time of the entry (`ledger.requests.ForgetProducers`); this only proposes.
"""

import asyncio
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final

import structlog

from gateway.coordination.shard import Shard
from ledger.partitions import PartitionLog
from ledger.producers import SILENT_MS
from ledger.requests import Done, ForgetProducers

log = structlog.get_logger(__name__)

HIGH_SHARE: Final = 0.9
"""Above this share of a bound the silent ones go,"""
LOW_SHARE: Final = 0.8
"""until no more than this is left."""
SLICE_PRODUCERS: Final = 1_000
PAUSE_S: Final = 10.0
"""After nothing could be forgotten, wait before all are looked at again."""


class ProducerRelief:
    """`crowded` are numbers of partitions in which a new producer was refused; they are taken out of it."""

    def __init__(self, shard: Shard, crowded: set[int], clock: Callable[[], int], wait_s: float) -> None:
        self._shard = shard
        self._crowded = crowded
        self._clock = clock
        self._wait_s = wait_s
        self._not_before = 0.0

    async def relieve(self) -> int:
        """How many were forgotten."""
        state, loop = self._shard.state, asyncio.get_running_loop()
        bounds = state.producer_bounds
        is_full = state.producer_count > HIGH_SHARE * bounds.total
        if not (is_full or self._crowded) or loop.time() < self._not_before:
            return 0
        crowded = [state.logs[number] for number in self._crowded if number in state.logs]
        self._crowded.clear()
        forgotten = 0
        for partition in crowded:
            excess = len(partition.producers) - int(LOW_SHARE * bounds.partition)
            forgotten += await self._forget([partition], excess)
        if is_full:
            excess = state.producer_count - int(LOW_SHARE * bounds.total)
            forgotten += await self._forget(list(state.logs.values()), excess)
        if forgotten:
            log.info("producers.forgotten", producers=forgotten, left=state.producer_count)
        else:
            self._not_before = loop.time() + PAUSE_S
        return forgotten

    async def _forget(self, partitions: Iterable[PartitionLog], excess: int) -> int:
        """So many of those that are silent."""
        if excess <= 0:
            return 0
        before_ms = max(self._clock(), self._shard.state.entry_time_ms) - SILENT_MS
        silent: list[tuple[int, int, int]] = []
        looked_at = 0
        for partition in partitions:
            looked_at += 1 + len(partition.producers)
            silent += [
                (producer.last_ms, partition.number, producer_id)
                for producer_id, producer in partition.producers.items()
                if producer.last_ms <= before_ms
            ]
            if looked_at >= SLICE_PRODUCERS:
                looked_at = 0
                await asyncio.sleep(0)
        going = [(number, producer_id) for _, number, producer_id in nsmallest(excess, silent)]
        forgotten = 0
        for start in range(0, len(going), SLICE_PRODUCERS):
            request = ForgetProducers(going[start : start + SLICE_PRODUCERS])
            answer = await self._shard.ask(request, asyncio.get_running_loop().time() + self._wait_s)
            assert isinstance(answer, Done)
            forgotten += answer.count
        return forgotten
