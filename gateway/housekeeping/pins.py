"""Releases pins of jobs that have not renewed them: a job that died keeps nothing for ever."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from gateway.coordination.shard import Shard
from gateway.housekeeping.housekeeper import Housekeeper
from ledger.swaps.requests import ReleasePin
from ledger.swaps.state import Pins

log = structlog.get_logger(__name__)

LOOK_S: Final = 30.0
EXPIRY_MS: Final = 10 * 60_000
"""On the owner's monotonic clock: what the clock of the host does in between has no effect."""


class PinExpiry:
    """When each pin was renewed is known to the owner alone, and is not journaled: with each epoch all of
    them have the full time again."""

    def __init__(
        self,
        shard: Shard,
        elapsed_ms: Callable[[], int],
        loop_time: Callable[[], float],
        wait_s: float,
    ) -> None:
        self._shard = shard
        self._elapsed_ms = elapsed_ms
        self._loop_time = loop_time
        self._wait_s = wait_s
        self._renewed_ms: dict[bytes, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def begin_epoch(self) -> None:
        self._renewed_ms.clear()
        housekeeper = Housekeeper()
        housekeeper.add("pins", LOOK_S, self.expire)
        self._task = asyncio.create_task(housekeeper.run(), name="pins")

    async def end_epoch(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def renew(self, job: bytes) -> None:
        """A job asks for its pin. Call this before the request is submitted, too: a pin that expires now is
        released before it, and not between it and its result."""
        self._renewed_ms[job] = self._elapsed_ms()

    async def expire(self) -> int:
        """How many were released. A pin that is seen for the first time has its full time from now on."""
        pins, now_ms = self._shard.state.part(Pins), self._elapsed_ms()
        self._renewed_ms = {job: self._renewed_ms.get(job, now_ms) for job in pins}
        silent = [job for job, renewed_ms in self._renewed_ms.items() if now_ms - renewed_ms >= EXPIRY_MS]
        released = 0
        for job in silent:
            if self._renewed_ms.get(job, 0) > now_ms - EXPIRY_MS:
                # Meanwhile, as one before was released.
                continue
            await self._shard.ask(ReleasePin(job), self._loop_time() + self._wait_s)
            log.info("pin.expired", job=job.hex())
            released += 1
        return released


def oldest_pin_s(shard: Shard) -> float:
    """For how long the oldest pin has been held; 0 if there is none."""
    pins = shard.state.part(Pins)
    return max(0.0, (shard.now_ms() - pins.oldest_ms) / 1000) if pins else 0.0
