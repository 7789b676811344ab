"""How long a request waited for others: a fetch for records, a member for its group. That is no latency."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Parked:
    """Seconds of one request, so far."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


_OF_REQUEST: ContextVar[Parked | None] = ContextVar("parked", default=None)


def parked_in_this_task() -> Parked:
    """A count for the request that this task works on from here on."""
    parked = Parked()
    _OF_REQUEST.set(parked)
    return parked


@contextmanager
def parked() -> Iterator[None]:
    """What is within waits for others. Where no request is worked on, it counts for nothing."""
    began = time.perf_counter()
    try:
        yield
    finally:
        count = _OF_REQUEST.get()
        if count is not None:
            count.seconds += time.perf_counter() - began
