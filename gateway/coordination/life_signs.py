"""Signs of life of an owner that has replaced another gateway just before, which may be back as a standby.

A standby cannot ask the owner; it sees the journal alone. So such an owner writes an entry at least every ten
seconds, an empty one if it has nothing to say. An owner that nobody contests writes none. The gateway of a
job always does: the next job can tell by its silence that it was killed (`absence.py`).
"""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from gateway.coordination.damping import Candidate
from gateway.coordination.shard import Shard
from ledger.cluster.requests import ShowLife
from ledger.errors import StoreError

log = structlog.get_logger(__name__)

EVERY_S: Final = 10.0


class LifeSigns:
    """A part of the owner scope."""

    def __init__(self, shard: Shard, candidate: Candidate) -> None:
        self._shard = shard
        self._candidate = candidate
        self._task: asyncio.Task[None] | None = None

    async def begin_epoch(self) -> None:
        if self._shard.is_exclusive:
            return
        is_contested = self._candidate.is_contested(self._shard.state)
        if is_contested:
            log.warning("takeover.contested", shard=self._shard.journal.shard)
        if is_contested or self._candidate.is_of_job:
            self._task = asyncio.create_task(self._show(), name="life-signs")

    async def end_epoch(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _show(self) -> None:
        loop, applied = asyncio.get_running_loop(), self._shard.state.applied
        while True:
            await asyncio.sleep(EVERY_S)
            if self._shard.state.applied == applied:
                # A store that fails is reported by whatever needs it.
                with suppress(StoreError, TimeoutError):
                    await self._shard.ask(ShowLife(), loop.time() + EVERY_S)
            applied = self._shard.state.applied
