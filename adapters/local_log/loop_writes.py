"""When a frame may be written on the thread of the event loop.

To hand a write to the log's thread and its end back costs more CPU than the write. But what holds such a
write up holds up everything else. So only small frames go that way, on a disk that has been quick, and after
one slow write none for a time in proportion to it: of the time that passes, slow writes take the loop at most
one part in `PAUSE_FACTOR` (docs/decisions/0068, 0069, 0074).
"""

import math
from collections.abc import Callable
from typing import Final

QUICK_S: Final = 0.001
QUICK_AT_FIRST: Final = 100
"""Before the first frame goes that way so many writes have to be quick."""
QUICK_AGAIN: Final = 1
"""So many writes have to be quick after one that was not, by whichever thread. What the log's thread takes
includes its wait for the interpreter, so more would say more of the event loop's work than of the disk."""
PAUSE_FACTOR: Final = 100
"""After a slow write of the loop all writes are the log's own thread's, for that many times its duration."""
MAX_LOOP_BYTES: Final = 64 * 1024


class LoopWrites:
    """Of one log. `precise_s`: a clock that goes on within an iteration of the event loop; it may stand still
    while the calling thread waits for a processor, which it does wherever the write is made."""

    def __init__(self, precise_s: Callable[[], float]) -> None:
        self._precise_s = precise_s
        self._missing = QUICK_AT_FIRST
        """How many more quick writes in a row are needed."""
        self._paused_until = -math.inf

    def may_write(self, size: int) -> bool:
        """Whether the next frame, of `size` bytes, may hold the event loop up."""
        if size > MAX_LOOP_BYTES or self._missing:
            return False
        return self._paused_until == -math.inf or self._has_paused()

    def timed(self, write: Callable[[], None], *, is_on_loop: bool) -> None:
        """Make a write, and learn from its duration. Raises what it raises."""
        missing = self._missing
        # One that fails is not quick.
        self._missing = max(missing, QUICK_AGAIN)
        began = self._precise_s()
        write()
        now = self._precise_s()
        took_s = now - began
        if took_s < QUICK_S:
            self._missing = missing - 1 if missing else 0
        elif is_on_loop:
            # What the thread meets meanwhile makes it no longer: that has cost the loop nothing.
            self._paused_until = now + PAUSE_FACTOR * took_s

    def _has_paused(self) -> bool:
        if self._precise_s() < self._paused_until:
            return False
        self._paused_until = -math.inf
        return True
