"""A timer for fractions of a millisecond, which the timers of the event loop round to whole ones.

Linux's timerfd, through the C library: `os.timerfd_create` came with Python 3.13.
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

_CLOCK_MONOTONIC: Final = 1
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_SPEC: Final = struct.Struct("@qqqq")
"""Seconds and nanoseconds of the interval, then of the first time; all 0 disarms."""
_DISARM: Final = _SPEC.pack(0, 0, 0, 0)
_EXPIRATIONS_BYTES: Final = 8

# The calls never block, and to release the interpreter's lock for them would cost more than they do.
_libc = ctypes.PyDLL(None, use_errno=True)


class Timer(Protocol):
    """Calls back once, on the running event loop, a fixed time after it was armed."""

    def arm(self) -> None:
        """Count from now on, also if it was armed before."""
        ...

    def disarm(self) -> None:
        """Do not call back until it is armed again."""
        ...

    def close(self) -> None: ...


NewTimer: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""From seconds and what is called back. OSError if there is no timer to have."""


class TimerFd:
    """Calls back once, on the running event loop, `seconds` after it was armed. `close` it."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        """OSError if the system has no such timers, or none left."""
        if not hasattr(_libc, "timerfd_create"):
            raise OSError(errno.ENOSYS, "this system has no timerfd")
        fd = _libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "there is no timerfd to have")
        self._fd: int = fd
        self._callback = callback
        nanoseconds = max(round(seconds * 1e9), 1)
        self._spec = _SPEC.pack(0, 0, *divmod(nanoseconds, 1_000_000_000))
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(fd, self._fire)
        except BaseException:
            os.close(fd)
            raise

    def arm(self) -> None:
        """Count from now on, also if it was armed before."""
        _libc.timerfd_settime(self._fd, 0, self._spec, None)

    def disarm(self) -> None:
        """Do not call back until it is armed again."""
        _libc.timerfd_settime(self._fd, 0, _DISARM, None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _fire(self) -> None:
        try:
            os.read(self._fd, _EXPIRATIONS_BYTES)
        except BlockingIOError:
            return  # it was disarmed after it had expired, and before this iteration
        self._callback()
