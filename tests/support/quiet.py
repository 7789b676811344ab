"""CPU seconds as they are on a quiet machine.

Bounds on how long the event loop is held are for a machine whose memory is its own. The CPU time of a
thread leaves out what other programs compute, but has what they do to the memory: where the neighbours of a
virtual machine use it up, code that goes over many objects takes 2 to 50 times as long, for minutes, while
a loop over a counter takes as long as ever. So tests compare with what the same kind of work takes at that
moment.
"""

import time
from functools import cache
from typing import Final

OBJECTS: Final = 60_000
BYTES_BETWEEN: Final = 200
QUIET_S: Final = 0.002
"""For a list of them on a quiet machine."""
MOST: Final = 10.0
"""What holds the event loop for longer than that is no fault of the machine."""
_found: Final[list[float]] = []


def slowness() -> float:
    """How many times as long as on a quiet machine it takes now to look at objects: from 1 to MOST."""
    objects = _objects()
    began = time.thread_time()
    list(objects)
    found = (time.thread_time() - began) / QUIET_S
    _found.append(found)
    return min(max(1.0, found), MOST)


def worst_slowness() -> float:
    """Of all that this process has measured."""
    return max(_found, default=1.0)


def as_if_quiet(cpu_s: float) -> float:
    """What that would have taken on a quiet machine. To be called right after it was measured."""
    return cpu_s / slowness()


@cache
def _objects() -> dict[tuple[int, str], bytes]:
    """Some hundred bytes from each other, as what a ledger knows of many things is."""
    return {(number, str(number)): bytes(BYTES_BETWEEN) for number in range(OBJECTS)}
