"""Take-overs are damped: a gateway that finds two by others within a minute waits before its own.

Without that, two gateways that are restarted whenever they end would replace each other for ever, each for a
second. A gateway that owned the shard before and comes back waits for as long as the owner shows life: it is
a standby then. `gateway/coordination/life_signs.py` is the owner's part. See docs/decisions/0034.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

import structlog

from ledger.cluster.owners import NO_GATEWAY, Epoch, Owners
from ledger.cluster.requests import Description
from ledger.errors import StoreError
from ledger.ports import Journal
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

RECENT_MS: Final = 60_000
MOST_OTHERS: Final = 1
"""So many take-overs by others within RECENT_MS are a rolling update."""
CONTEST_MS: Final = 180_000
LOOK_S: Final = 5.0
SILENT_S: Final = 30.0
"""An owner that lives may be silent for twice the time between its signs of life, and its store may be
slow."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A gateway that is about to take the shard over."""

    gateway: int
    described: Description

    def is_other(self, epoch: Epoch) -> bool:
        """Whether another gateway began it. Two on different machines, or with different addresses, are two,
        also if both have the same node id by mistake."""
        return epoch.who != (self.gateway, self.described.host, self.described.address)

    @property
    def is_of_job(self) -> bool:
        """Whether it serves a job alone, as no client can connect: see `absence.py`."""
        return bool(self.described.host) and not self.described.address

    def others(self, epochs: Sequence[Epoch], since_ms: int) -> list[Epoch]:
        """Take-overs by other gateways since then. One that was started again has taken nothing over, and a
        command does not come back, nor does the gateway of a job."""
        taken: list[Epoch] = []
        for epoch in epochs:
            comes_back = epoch.gateway != NO_GATEWAY and not epoch.is_of_job
            if comes_back and (not taken or taken[-1].who != epoch.who):
                taken.append(epoch)
        return [epoch for epoch in taken if epoch.began_ms >= since_ms and self.is_other(epoch)]

    def is_contested(self, state: LedgerState) -> bool:
        """Of the owner: whether others owned the shard just before, and may come back."""
        epochs = state.part(Owners).epochs
        return bool(epochs) and bool(self.others(epochs[:-1], epochs[-1].began_ms - CONTEST_MS))


class Damping:
    """Of one start."""

    def __init__(
        self,
        candidate: Candidate,
        wait_s: float,
        dice: Callable[[], float],
        clock: Callable[[], int],
        pages: Callable[[Callable[[], str]], AbstractAsyncContextManager[None]],
    ) -> None:
        """A wait lasts from `wait_s` to twice that, by `dice`, a number in [0, 1); that of a standby from
        SILENT_S at least. 0: there is none. `clock`: unix ms. While it lasts, `pages` says why the gateway is
        not ready."""
        self._candidate = candidate
        self._wait_s = wait_s
        self._dice = dice
        self._clock = clock
        self._pages = pages

    async def wait(self, journal: Journal, state: LedgerState) -> bool:
        """Whether there was a wait: then the state, which is that of the journal's end, is outdated."""
        if journal.exclusive or not self._wait_s:
            return False
        epochs = state.part(Owners).epochs
        now_ms = max(self._clock(), state.entry_time_ms)
        others = self._candidate.others(epochs, now_ms - RECENT_MS)
        if len(others) <= MOST_OTHERS:
            return False
        is_standby = self._candidate.is_other(epochs[-1]) and any(
            not self._candidate.is_other(epoch) for epoch in epochs
        )
        least_s = max(self._wait_s, SILENT_S) if is_standby else self._wait_s
        owner, seconds = epochs[-1], least_s * (1.0 + self._dice())
        until = (
            f"it has written nothing for {seconds:.0f} s" if is_standby else f"{seconds:.0f} s have passed"
        )
        reason = (
            f"{owner} owns the shard since its epoch {owner.number}, and others have taken it over "
            f"{len(others)} times within a minute: this gateway waits until {until}. "
            "Run one gateway only, or stop the one that is not wanted"
        )
        log.warning("takeover.damped", shard=journal.shard, detail=reason)
        async with self._pages(lambda: reason):
            await self._wait(journal, JournalEnd(journal, state.applied), seconds, is_standby)
        log.info("takeover.goes_on", shard=journal.shard)
        return True

    async def _wait(self, journal: Journal, end: "JournalEnd", seconds: float, is_standby: bool) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        while loop.time() < due:
            await asyncio.sleep(min(LOOK_S, due - loop.time()))
            if not is_standby:
                continue
            try:
                has_moved = await end.has_moved()
            except StoreError as error:
                # What cannot be seen is no sign of silence.
                log.info("takeover.owner_not_seen", shard=journal.shard, reason=str(error))
                has_moved = True
            if has_moved:
                due = loop.time() + seconds


class JournalEnd:
    """The end of a journal that others write, found with few reads."""

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal = journal
        self.number = number
        """An entry that was absent when it was looked for, and all after it."""

    async def has_moved(self) -> bool:
        """Whether entries have come since the last call. Errors: StoreError."""
        start = await self._journal.start()
        moved, self.number = start > self.number, max(start, self.number)
        step = 1
        while await self._journal.get(self.number) is not None:
            moved = True
            self.number += step
            step *= 2
        if step > 1:
            # Not beyond the end: entries below `_number` must be seen when they come.
            self.number = await self._first_absent(self.number - step // 2 + 1, self.number)
        return moved

    async def _first_absent(self, low: int, high: int) -> int:
        """Between a number after a present entry and one of an absent entry."""
        while low < high:
            middle = (low + high) // 2
            if await self._journal.get(middle) is None:
                high = middle
            else:
                low = middle + 1
        return low
