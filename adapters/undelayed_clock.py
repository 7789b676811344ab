"""A clock for what a disk takes: it stands still while the calling thread could run and has no processor.

On a busy machine a thread whose write has ended waits for a processor, often longer than the disk took. Linux
counts these waits for each thread as its run delay (`/proc/thread-self/schedstat`, in nanoseconds).
"""

import os
import threading
import time
from contextlib import suppress
from typing import Final

RUN_DELAY: Final = "/proc/thread-self/schedstat"
MAX_BYTES: Final = 100
"""Of that file: three numbers."""
NS: Final = 1_000_000_000


class UndelayedClock:
    """Seconds, from any thread: two calls of one thread compare, those of several do not. Where the system
    counts no run delay it goes on as any other clock."""

    def __init__(self, path: str = RUN_DELAY) -> None:
        self._path = path
        self._threads = threading.local()

    def __call__(self) -> float:
        return time.perf_counter() - self._run_delay_s()

    def _run_delay_s(self) -> float:
        try:
            file: _DelayFile | None = self._threads.file
        except AttributeError:
            file = self._threads.file = self._opened()
        if file is None:
            return 0.0
        try:
            return int(os.pread(file.descriptor, MAX_BYTES, 0).split()[1]) / NS
        except (OSError, ValueError, IndexError):
            # Never half of the measurements with it and half without.
            self._threads.file = None
            return 0.0

    def _opened(self) -> "_DelayFile | None":
        with suppress(OSError):
            return _DelayFile(self._path)
        return None


class _DelayFile:
    """The file of one thread, closed with it."""

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
