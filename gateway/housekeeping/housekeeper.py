"""Runs the steps of housekeeping when they are due: one task; a step that fails does not stop the others."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from gateway.coordination.free_space import FreeSpace
from gateway.coordination.shard import Shard
from gateway.housekeeping.checkpoint import Checkpointer
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.retention import Retention
from ledger.errors import StoreError

log = structlog.get_logger(__name__)

TICK_S = 0.5
FULL_S = 2.0


@dataclass(slots=True)
class _Step:
    name: str
    every_s: float
    run: Callable[[], Awaitable[object]]
    due_at: float = 0.0


class Housekeeper:
    def __init__(  # noqa: PLR0913 - what it keeps
        self,
        shard: Shard,
        checkpointer: Checkpointer,
        garbage: GarbageCollector,
        retention: Retention,
        grace_ms: int,
        retention_check_ms: int,
        space: FreeSpace | None = None,
    ) -> None:
        """On a full disk no image is written, since a restart needs none. A snapshot, after which the journal
        is pruned, is written if it fits."""
        self._shard = shard
        self._loop_time = asyncio.get_running_loop().time
        now = self._loop_time()
        disk = space or FreeSpace(())

        async def write_image() -> None:
            if not disk.is_full:
                await checkpointer.write_image()

        async def take_snapshot() -> None:
            # The image is written first, and may grow by the same size.
            if disk.spares(2 * checkpointer.snapshot_bytes):
                await checkpointer.snapshot_if_due()

        sweep_s = min(60.0, grace_ms / 4_000)
        self._steps = [
            _Step("drain", TICK_S, lambda: garbage.drain(self._loop_time)),
            _Step("retention", retention_check_ms / 1000, retention.apply, now + retention_check_ms / 1000),
            _Step("image", 5.0, write_image, now + 5.0),
            _Step("snapshot", 5.0, take_snapshot, now + 5.0),
            _Step("sweep", sweep_s, lambda: garbage.sweep(self._loop_time), now + sweep_s),
            _Step("full disk", FULL_S, lambda: garbage.sweep_if_full(self._loop_time), now + FULL_S),
            _Step("producers", 600.0, lambda: garbage.expire_producers(self._loop_time), now + 600.0),
        ]

    def add(self, name: str, every_s: float, run: Callable[[], Awaitable[object]]) -> None:
        """One more step, first in `every_s`."""
        self._steps.append(_Step(name, every_s, run, self._loop_time() + every_s))

    async def run(self) -> None:
        """Until cancelled, or until the shard is lost: the step under way ends there too: the next owner does
        all of this."""
        steps = asyncio.create_task(self._run_steps(), name="housekeeping-steps")
        lost = asyncio.create_task(self._shard.lost.wait())
        try:
            await asyncio.wait((steps, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            steps.cancel()
            lost.cancel()
            await asyncio.gather(steps, lost, return_exceptions=True)

    async def _run_steps(self) -> None:
        while not self._shard.lost.is_set():
            for step in self._steps:
                if self._loop_time() >= step.due_at:
                    await self._step(step)
            await asyncio.sleep(TICK_S)

    async def _step(self, step: _Step) -> None:
        try:
            await step.run()
        except (StoreError, TimeoutError) as error:
            log.warning("housekeeping.failed", step=step.name, error=str(error))
        except Exception:
            log.exception("housekeeping.failed", step=step.name)
        step.due_at = self._loop_time() + step.every_s
