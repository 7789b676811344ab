"""Makes room for new producers where `limits.producers` or `limits.partition_producers` are nearly used up.

A producer that has been silent for a quarter of an hour may be forgotten, the longest silent first. What goes
is decided by the machine, by the time of the entry (`ledger.requests.ForgetProducers`); this only proposes,
and proposes none that could not be heard because the clock was set or the gateway did not run.
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
MAX_STEP_MS: Final = 60_000
"""By more than this a clock goes on by itself only if it was set, or if the gateway stood still."""


class Hearing:
    """Until when producers could be heard, whatever the clock was set to (sans-I/O)."""

    def __init__(self, until_ms: int, now_ms: int, elapsed_ms: int) -> None:
        """Before, a process heard them until `until_ms`."""
        self._until_ms = until_ms
        self._since = elapsed_ms
        self._seen = now_ms, elapsed_ms

    def silent_since(self, now_ms: int, elapsed_ms: int) -> int:
        """Producers whose last batch is of this time or earlier were silent for SILENT_MS in which they could
        be heard. `elapsed_ms` is of a clock that is never set, and stands still while the gateway does."""
        seen_ms, seen_elapsed = self._seen
        if now_ms - seen_ms > elapsed_ms - seen_elapsed + MAX_STEP_MS:
            self._until_ms, self._since = self._heard_ms(seen_ms, seen_elapsed), elapsed_ms
        self._seen = now_ms, elapsed_ms
        return self._heard_ms(now_ms, elapsed_ms) - SILENT_MS

    def _heard_ms(self, now_ms: int, elapsed_ms: int) -> int:
        heard_for = elapsed_ms - self._since
        return now_ms if heard_for >= SILENT_MS else min(now_ms, self._until_ms + heard_for)


class ProducerRelief:
    """`crowded` are numbers of partitions in which a new producer was refused; they are taken out of it."""

    def __init__(
        self,
        shard: Shard,
        crowded: set[int],
        clock: Callable[[], int],
        wait_s: float,
        elapsed: Callable[[], int] | None = None,
    ) -> None:
        """Without `elapsed`, monotonic ms, all time on `clock` counts as heard."""
        self._shard = shard
        self._crowded = crowded
        self._clock = clock
        self._wait_s = wait_s
        self._not_before = 0.0
        self._elapsed = elapsed
        self._hearing = Hearing(shard.recovered_ms, self._now_ms(), elapsed() if elapsed is not None else 0)

    async def relieve(self) -> int:
        """How many were forgotten."""
        state, loop = self._shard.state, asyncio.get_running_loop()
        bounds = state.producer_bounds
        # Also while none has to go: a step of the clock is seen between two looks at it.
        before_ms = self._silent_since()
        is_full = state.producer_count > HIGH_SHARE * bounds.total
        if not (is_full or self._crowded) or loop.time() < self._not_before:
            return 0
        crowded = [state.logs[number] for number in self._crowded if number in state.logs]
        self._crowded.clear()
        forgotten = 0
        for partition in crowded:
            excess = len(partition.producers) - int(LOW_SHARE * bounds.partition)
            forgotten += await self._forget([partition], excess, before_ms)
        if is_full:
            excess = state.producer_count - int(LOW_SHARE * bounds.total)
            forgotten += await self._forget(list(state.logs.values()), excess, before_ms)
        if forgotten:
            log.info("producers.forgotten", producers=forgotten, left=state.producer_count)
        else:
            self._not_before = loop.time() + PAUSE_S
        return forgotten

    def _silent_since(self) -> int:
        now_ms = self._now_ms()
        if self._elapsed is None:
            return now_ms - SILENT_MS
        return self._hearing.silent_since(now_ms, self._elapsed())

    def _now_ms(self) -> int:
        return max(self._clock(), self._shard.state.entry_time_ms)

    async def _forget(self, partitions: Iterable[PartitionLog], excess: int, before_ms: int) -> int:
        """So many of those that are silent."""
        if excess <= 0:
            return 0
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
