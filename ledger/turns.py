"""What a store reports of calls that wait for their turn in it, to whatever times them.

A call may consist of several requests. It waits while some of them wait for a turn, and none has one.
"""

from contextvars import ContextVar
from typing import Final, Protocol


class Queueing(Protocol):
    """The requests of one call."""

    def waits(self) -> None:
        """A request waits for its turn."""
        ...

    def passes(self) -> None:
        """It does not any more: its turn has come, or it was given up, or it waits for another turn next."""
        ...

    def begins(self) -> None:
        """A request is with the store."""
        ...

    def ends(self) -> None: ...


TIMED_CALL: Final[ContextVar[Queueing | None]] = ContextVar("timed_call", default=None)
"""The call that this task is part of, if it is timed. Tasks that are made for it inherit that."""
