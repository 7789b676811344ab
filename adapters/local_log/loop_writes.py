"""When a frame may be written on the thread of the event loop.

To hand a write to the log's thread and its end back costs more CPU than the write. But what holds such a
write up holds up everything else. So only small frames go that way, on a disk that has been quick for long,
and after one slow write none for a while (docs/decisions/0068).
"""

import math
from collections.abc import Callable
from typing import Final

QUICK_S: Final = 0.001
SLOW_S: Final = 0.005
QUICK_IN_A_ROW: Final = 100
"""So many of the last writes have to be quick, by whichever thread they were."""
PAUSE_S: Final = 60.0
"""How long after a slow one all writes are the log's own thread's."""
MAX_LOOP_BYTES: Final = 64 * 1024


class LoopWrites:
    """Of one log. `precise_s`: a monotonic clock that goes on within an iteration of the event loop."""

    def __init__(self, precise_s: Callable[[], float]) -> None:
        self._precise_s = precise_s
        self._quick = 0
        self._paused_until = -math.inf

    def may_write(self, size: int) -> bool:
        """Whether the next frame, of `size` bytes, may hold the event loop up."""
        if size > MAX_LOOP_BYTES or self._quick < QUICK_IN_A_ROW:
            return False
        return self._precise_s() >= self._paused_until

    def timed(self, write: Callable[[], None]) -> None:
        """Make a write, by whichever thread, and learn from its duration. Raises what it raises."""
        # One that fails is not quick.
        quick, self._quick = self._quick, 0
        began = self._precise_s()
        write()
        now = self._precise_s()
        if now - began < QUICK_S:
            self._quick = min(quick + 1, QUICK_IN_A_ROW)
        elif now - began > SLOW_S:
            self._paused_until = now + PAUSE_S
