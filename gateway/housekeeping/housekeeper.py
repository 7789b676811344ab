"""Runs steps of housekeeping when they are due: one task; a step that fails does not stop the others."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from ledger.errors import StoreError

log = structlog.get_logger(__name__)

TICK_S = 0.5


@dataclass(slots=True)
class _Step:
    name: str
    every_s: float
    run: Callable[[], Awaitable[object]]
    due_at: float = 0.0


class Housekeeper:
    def __init__(self) -> None:
        self._loop_time = asyncio.get_running_loop().time
        self._steps: list[_Step] = []

    def add(
        self, name: str, every_s: float, run: Callable[[], Awaitable[object]], first_s: float | None = None
    ) -> None:
        """One more step, first in `first_s`, by default in `every_s`."""
        first_s = every_s if first_s is None else first_s
        self._steps.append(_Step(name, every_s, run, self._loop_time() + first_s))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
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
