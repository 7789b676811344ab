"""A replica of a shard: its durable state here, to which entries are applied in order, and its time.

Every gateway has one, whether it owns the shard or not. Only durable entries change it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.coordination.journal import consecutive_entries
from gateway.coordination.ledger import Subscriber
from gateway.coordination.steps import in_steps
from ledger.journal import begin_entry, decode_entry, decoding_entry, go_on
from ledger.partitions.logs import PartitionLogs
from ledger.partitions.state import PartitionLog
from ledger.ports import Journal
from ledger.state import LedgerState

NOTIFIED_AT_ONCE: Final = 1_000
"""Partitions of a state that is replaced: other tasks run in between."""

LARGE_ENTRY_BYTES: Final = 4 * 1024
"""From this size on an entry may have a record that takes long to decode: a group of many members, each of
which takes some bytes for its random id alone, however well the rest is deflated."""


class Replica:
    def __init__(
        self,
        shard: int,
        state: LedgerState,
        clock: Callable[[], int],
        elapsed: Callable[[], int] | None = None,
    ) -> None:
        """`elapsed`, ms on a monotonic clock, lets time go on while `clock`, unix ms, is behind the last
        entry; without it time stands still."""
        self.shard = shard
        self.state = state
        self.clock = clock
        self.elapsed = elapsed
        self.last_nonce = b""
        """Of the last entry applied."""
        self.journal_bytes = 0
        """Of the entries applied to what was recovered, for the decision to take a snapshot."""
        self._went_on: tuple[int, int] | None = None
        """While the clock is behind: the entry time at which that was seen, and `elapsed` then."""
        self._subscribers: list[Subscriber] = []
        self._barriers: list[tuple[int, asyncio.Future[None]]] = []
        self.applying = asyncio.Lock()
        """Held while an entry is applied. While another task holds it, entries and their requests wait."""

    async def apply(self, data: bytes, inline_bytes: int = 0) -> None:
        """Apply the next entry, from its bytes: as the owner, every follower and every restart does.
        `inline_bytes`: of batches that are inside of it, which the journal has to keep too."""
        where = f"{self.state.applied} of shard {self.shard}"
        large = len(data) >= LARGE_ENTRY_BYTES
        # Nothing is applied before all of it is decoded.
        entry = await in_steps(decoding_entry(data, where)) if large else decode_entry(data, where)
        async with self.applying:
            touched = begin_entry(self.state, entry)
            self.journal_bytes += len(data) + inline_bytes
            self.last_nonce = entry.nonce
            try:
                self._notify(touched)
            finally:
                if self.state.leaving:
                    await self._go_on()
        if self._barriers:
            self._release_barriers()

    async def _go_on(self) -> None:
        """A topic with very many partitions was deleted: other tasks run in between."""
        try:
            while self.state.leaving:
                await asyncio.sleep(0)
                self._notify(go_on(self.state))
        finally:
            # Cancelled, or a subscriber has failed: an image may still be written.
            while self.state.leaving:
                go_on(self.state)

    def _notify(self, touched: Sequence[PartitionLog]) -> None:
        if touched:
            for subscriber in tuple(self._subscribers):
                subscriber(touched)

    async def follow(self, journal: Journal) -> None:
        """Apply what the journal has after the last entry applied. PrunedMeanwhile if some of it is gone."""
        async for stored in consecutive_entries(journal, self.state.applied):
            await self.apply(stored.data)

    async def replace(self, state: LedgerState, nonce: bytes, journal_bytes: int) -> None:
        """Go on with a later state of the same journal, whose entries are pruned. `nonce` is that of its last
        entry; `journal_bytes` of its entries are not in the snapshot that it was made of."""
        async with self.applying:
            before, self.state = self.state, state
            state.come_after(before)
            self.journal_bytes += journal_bytes
            self.last_nonce = nonce
            try:
                await self._notify_of_all(before.logs)
            finally:
                self._release_barriers()

    async def _notify_of_all(self, before: PartitionLogs) -> None:
        """Any partition of before may have moved. One that is blank now, or gone, has no log any more."""
        # A request that still reads the state before may make logs in it.
        left = list(before)
        try:
            while left:
                self._notify(self._taken(left, before))
                await asyncio.sleep(0)
        finally:
            # Cancelled, or a subscriber has failed: the state is another one all the same.
            while left:
                self._notify(self._taken(left, before))

    def _taken(self, left: list[int], before: PartitionLogs) -> list[PartitionLog]:
        numbers, left[-NOTIFIED_AT_ONCE:] = left[-NOTIFIED_AT_ONCE:], []
        return [self.state.logs.get(number, before[number]) for number in numbers]

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Be called after each applied entry. Returns the undo."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    async def barrier(self, entries: int, deadline: float) -> None:
        """Return once this number of entries is applied. TimeoutError at the deadline (loop time)."""
        if self.state.applied >= entries:
            return
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers.append((entries, applied))
        async with asyncio.timeout_at(deadline):
            await applied

    def now_ms(self) -> int:
        """The time of the next entry, of keys, and of all ages that are counted from entries: never before
        the last entry, whatever the clock says. While the clock is behind it goes at half speed, so that ages
        grow and the clock catches up."""
        clock_ms, entry_ms = self.clock(), self.state.entry_time_ms
        if self._went_on is None:
            if clock_ms >= entry_ms or self.elapsed is None:
                return max(clock_ms, entry_ms)
            self._went_on = entry_ms, self.elapsed()
        assert self.elapsed is not None
        began_ms, elapsed = self._went_on
        now_ms = max(entry_ms, began_ms + (self.elapsed() - elapsed) // 2)
        if clock_ms >= now_ms:
            self._went_on = None
        return max(clock_ms, now_ms)

    def _release_barriers(self) -> None:
        waiting, self._barriers = self._barriers, []
        for entries, applied in waiting:
            if applied.done():
                continue
            if self.state.applied >= entries:
                applied.set_result(None)
            else:
                self._barriers.append((entries, applied))
