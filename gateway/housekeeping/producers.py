"""Forgets idle producers where `limits.producers` or `limits.partition_producers` are nearly used up.

A producer that has been idle for 15 minutes may be forgotten, the longest idle first. The machine decides, by
the time of the entry (`ForgetProducers`); this module only proposes. It proposes no producer whose idle time
may be wrong because the clock was set or the gateway did not run.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import structlog

from gateway.coordination.shard import Shard
from ledger.partitions.producers import SILENT_MS
from ledger.partitions.requests import ForgetProducers
from ledger.partitions.state import PartitionLog
from ledger.requests import Done
from ledger.transactions.state import Transactions

log = structlog.get_logger(__name__)

HIGH_SHARE: Final = 0.9
"""Above this share of a bound idle ones are forgotten,"""
LOW_SHARE: Final = 0.8
"""until no more than this is left."""
SLICE_PRODUCERS: Final = 1_000
PAUSE_S: Final = 10.0
"""After nothing could be forgotten, how long to wait before all are checked again."""
MAX_STEP_MS: Final = 60_000
"""A clock advances by more than this between two readings only if it was set, or if the gateway stood
still."""


class Hearing:
    """The time until which producers could be heard, independent of changes of the clock (sans-I/O)."""

    def __init__(self, until_ms: int, now_ms: int, elapsed_ms: int, silent_ms: int = SILENT_MS) -> None:
        """An earlier process heard them until `until_ms`."""
        self._silent_ms = silent_ms
        self._until_ms = until_ms
        self._since = elapsed_ms
        self._seen = now_ms, elapsed_ms

    def silent_since(self, now_ms: int, elapsed_ms: int) -> int:
        """Producers whose last batch is of this time or earlier were idle for `silent_ms` during which they
        could be heard. `elapsed_ms` is of a monotonic clock that stops while the gateway stands still."""
        seen_ms, seen_elapsed = self._seen
        if now_ms - seen_ms > elapsed_ms - seen_elapsed + MAX_STEP_MS:
            self._until_ms, self._since = self._heard_ms(seen_ms, seen_elapsed), elapsed_ms
        self._seen = now_ms, elapsed_ms
        return self._heard_ms(now_ms, elapsed_ms) - self._silent_ms

    def _heard_ms(self, now_ms: int, elapsed_ms: int) -> int:
        heard_for = elapsed_ms - self._since
        return now_ms if heard_for >= self._silent_ms else min(now_ms, self._until_ms + heard_for)


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
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Producers were heard by the owner before until its last entry."""
        elapsed_ms = self._elapsed() if self._elapsed is not None else 0
        self._hearing = Hearing(self._shard.owner.recovered_ms, self._now_ms(), elapsed_ms)

    async def relieve(self) -> int:
        """How many were forgotten."""
        state, loop = self._shard.state, asyncio.get_running_loop()
        bounds = state.producer_bounds
        # Also while none has to be forgotten: a step of the clock shows between two readings.
        before_ms = self._silent_since()
        # What open transactions have touched may become as many pairs, and is counted where they are refused.
        count = state.producer_count + state.part(Transactions).touched
        is_full = count > HIGH_SHARE * bounds.total
        if not (is_full or self._crowded) or loop.time() < self._not_before:
            return 0
        crowded = [state.logs[number] for number in self._crowded if number in state.logs]
        self._crowded.clear()
        forgotten = 0
        for partition in crowded:
            excess = len(partition.producers) - int(LOW_SHARE * bounds.partition)
            forgotten += await self._forget([partition], excess, before_ms)
        if is_full:
            excess = count - int(LOW_SHARE * bounds.total)
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

    async def _forget(self, partitions: Sequence[PartitionLog], excess: int, before_ms: int) -> int:
        """Forget `excess` of the idle producers, the longest idle first, to the second."""
        if excess <= 0:
            return 0
        silent = Counter[int]()
        async for partition in in_slices(partitions):
            times = [producer.last_ms for producer in partition.producers.values()]
            silent.update([last_ms // 1000 for last_ms in times if last_ms <= before_ms])
        last_s, of_last = _last_to_go(silent, excess)
        going: list[tuple[int, int]] = []
        async for partition in in_slices(partitions):
            for producer_id, producer in partition.producers.items():
                last_ms = producer.last_ms
                if last_ms > before_ms or last_ms // 1000 > last_s:
                    continue
                if last_ms // 1000 == last_s:
                    if not of_last:
                        continue
                    of_last -= 1
                going.append((partition.number, producer_id))
        forgotten = 0
        for start in range(0, len(going), SLICE_PRODUCERS):
            request = ForgetProducers(going[start : start + SLICE_PRODUCERS])
            result = await self._shard.ask(request, asyncio.get_running_loop().time() + self._wait_s)
            assert isinstance(result, Done)
            forgotten += result.count
        return forgotten


async def in_slices(partitions: Sequence[PartitionLog]) -> AsyncIterator[PartitionLog]:
    """The partitions; other tasks run after every thousand of their producers."""
    checked = 0
    for partition in partitions:
        yield partition
        checked += 1 + len(partition.producers)
        if checked >= SLICE_PRODUCERS:
            checked = 0
            await asyncio.sleep(0)


def _last_to_go(silent: Counter[int], excess: int) -> tuple[int, int]:
    """The last second with producers to forget, and how many of that second. `silent` counts producers by
    second; `excess` are to be forgotten in all."""
    last_s, left = 0, 0
    for last_s in sorted(silent):
        left = min(excess, silent[last_s])
        excess -= left
        if not excess:
            break
    return last_s, left
