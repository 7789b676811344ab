"""Where fetches wait for min_bytes, one future for each request. The ledger wakes them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.telemetry.parked import begin_parked, note_parked
from ledger.batch.header import HEADER_BYTES
from ledger.partitions.state import PartitionLog

NEWS_BYTES: Final = HEADER_BYTES
"""No batch is smaller. Where no more bytes are missing, any news is enough."""


class ParkedFetch:
    """A fetch that waits. `logs` are its partitions; `is_ready` is called with those that moved, and says
    whether the wait is over. Without it any news ends the wait."""

    __slots__ = ("is_ready", "logs", "woken")

    def __init__(
        self, logs: Sequence[PartitionLog], is_ready: Callable[[Sequence[PartitionLog]], bool] | None
    ) -> None:
        self.logs = logs
        self.is_ready = is_ready
        self.woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def wake(self, is_news: bool = True) -> None:
        if not self.woken.done():
            self.woken.set_result(is_news)


class Purgatory:
    """Parked fetches by partition number. `touched` is what the shard calls after each entry."""

    def __init__(self) -> None:
        # In order, so that the first to wait is the first to be woken.
        self._waiting: dict[int, dict[ParkedFetch, None]] = {}
        self._touched: dict[int, PartitionLog] = {}
        self._parked: dict[ParkedFetch, None] = {}
        self.is_closed = False

    @property
    def parked(self) -> int:
        return len(self._parked)

    def touched(self, logs: Iterable[PartitionLog]) -> None:
        """These partitions moved or were deleted. The fetches that wait for them are woken in the next
        iteration of the event loop: by then the produce service has put the new batches into the cache."""
        is_first = not self._touched
        for log in logs:
            if log.number in self._waiting:
                self._touched[log.number] = log
        if is_first and self._touched:
            asyncio.get_running_loop().call_soon(self._wake_ready)

    async def park(self, fetch: ParkedFetch, deadline: float) -> bool:
        """Wait until the fetch may be ready (True), or the deadline (False)."""
        self.enter(fetch, fetch.logs)
        try:
            return await self.wait(fetch, deadline)
        finally:
            self.leave(fetch, fetch.logs)

    def enter(self, fetch: ParkedFetch, logs: Sequence[PartitionLog]) -> None:
        """From now on the fetch is woken when one of these moves. The caller must `leave`, whatever
        happens."""
        waiting = self._waiting
        for log in logs:
            waiting.setdefault(log.number, {})[fetch] = None

    async def wait(self, fetch: ParkedFetch, deadline: float) -> bool:
        """As `park`, for a fetch that has entered with all of its partitions."""
        if self.is_closed:
            return False
        timer = asyncio.get_running_loop().call_at(deadline, fetch.wake, False)
        self._parked[fetch] = None
        began = begin_parked()
        try:
            return await fetch.woken
        finally:
            note_parked(began)
            timer.cancel()
            self._parked.pop(fetch, None)

    def close(self) -> None:
        """End all waits, and those to come at once."""
        self.is_closed = True
        for fetch in self._parked:
            fetch.wake(False)

    def _wake_ready(self) -> None:
        touched, self._touched = self._touched, {}
        moved: dict[ParkedFetch, list[PartitionLog]] = {}
        for log in touched.values():
            for fetch in self._waiting.get(log.number, ()):
                if fetch.is_ready is None:
                    fetch.wake()
                else:
                    moved.setdefault(fetch, []).append(log)
        for fetch, logs in moved.items():
            if fetch.is_ready is not None and not fetch.woken.done() and fetch.is_ready(logs):
                fetch.wake()

    def leave(self, fetch: ParkedFetch, logs: Sequence[PartitionLog]) -> None:
        waiting = self._waiting
        for log in logs:
            fetches = waiting.get(log.number)
            if fetches is not None:
                fetches.pop(fetch, None)
                if not fetches:
                    del waiting[log.number]
