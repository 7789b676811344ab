"""The last minutes of a gateway in figures, sampled in the background: what the plots of the console show."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

EVERY_S: Final = 2.0
MAX_POINTS: Final = 300
"""Ten minutes."""


class Counts(NamedTuple):
    """Totals since the start."""

    bytes_in: int
    bytes_out: int
    records_in: int
    records_out: int


class Point(NamedTuple):
    """Rates a second, up to `at_ms` (Unix time); `late_ms`: how late the event loop was for the sample."""

    at_ms: int
    bytes_in: float
    bytes_out: float
    records_in: float
    records_out: float
    late_ms: float


class History:
    """Samples as long as its task runs."""

    def __init__(self, counts: Callable[[], Counts], wall_ms: Callable[[], int]) -> None:
        self._counts = counts
        self._wall_ms = wall_ms
        self.points: deque[Point] = deque(maxlen=MAX_POINTS)

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        before, sampled_at = self._counts(), loop.time()
        while True:
            due = sampled_at + EVERY_S
            await asyncio.sleep(due - loop.time())
            now = loop.time()
            counts = self._counts()
            self.points.append(_point(before, counts, now - sampled_at, self._wall_ms(), now - due))
            before, sampled_at = counts, now


def _point(before: Counts, after: Counts, seconds: float, at_ms: int, late_s: float) -> Point:
    rates = [round(max(0, new - old) / seconds, 2) for old, new in zip(before, after, strict=True)]
    return Point(at_ms, rates[0], rates[1], rates[2], rates[3], round(max(0.0, late_s) * 1000, 2))
