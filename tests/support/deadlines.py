"""A store that is impatient for a while: what is made to hang is overdue soon, and a call on a busy machine
is not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from adapters.threads import StoreThreads

SOON_S: Final = 0.1


class _Threads(StoreThreads):
    def has_deadline(self, deadline_s: float) -> float:
        """From the next call on; what it was."""
        before, self._deadline_s = self._deadline_s, deadline_s
        # The timer is that of an earlier call, and may run for longer.
        self._watched_by = None
        return before


class Patience:
    """Of the stores that are opened with its `threads`."""

    def __init__(self) -> None:
        self._made: list[_Threads] = []

    def threads(self, *arguments: Any, **more: Any) -> StoreThreads:
        self._made.append(_Threads(*arguments, **more))
        return self._made[-1]

    @contextmanager
    def lost(self) -> Iterator[None]:
        """The calls that are made within it are overdue after SOON_S."""
        before = [threads.has_deadline(SOON_S) for threads in self._made]
        try:
            yield
        finally:
            for threads, deadline_s in zip(self._made, before, strict=True):
                threads.has_deadline(deadline_s)
