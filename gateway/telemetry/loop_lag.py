"""How late the event loop runs what is due: every request is late by about as much."""

import asyncio
import time
from typing import Final

from gateway.telemetry.local_metrics import LocalHistogram

INTERVAL_S: Final = 0.25
"""How often it is measured. A stop of the loop that is longer is always seen, of shorter ones a sample."""


class LoopLag:
    """Measures the lag of the running loop until it is closed."""

    def __init__(self, seconds: LocalHistogram) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        # The loop's own clock does not advance within an iteration, so it cannot measure one.
        self._due = time.perf_counter() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._measure)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        self._seconds.observe(max(0.0, time.perf_counter() - self._due))
        self.start()
