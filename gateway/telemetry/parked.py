"""Time for which a request was parked: a fetch for records, a member for its group. It is no latency."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Parked:
    """Seconds for which one request has been parked."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


_OF_REQUEST: ContextVar[Parked | None] = ContextVar("parked", default=None)


def parked_in_this_task() -> Parked:
    """The count of the request that this task handles from here on."""
    parked = Parked()
    _OF_REQUEST.set(parked)
    return parked


@contextmanager
def parked() -> Iterator[None]:
    """The body of the `with` is parked time, if this task handles a request."""
    began = begin_parked()
    try:
        yield
    finally:
        note_parked(began)


def begin_parked() -> float:
    """For `note_parked`: both together are the same as `parked`, and cost a third of it."""
    return time.perf_counter()


def note_parked(began: float) -> None:
    """Since `began` the request that this task handles, if it does, was parked."""
    count = _OF_REQUEST.get()
    if count is not None:
        count.seconds += time.perf_counter() - began
