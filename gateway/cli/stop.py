"""What stops a gateway in the foreground: a signal, or the loss of its shard."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from gateway.cli.exits import Exit
from gateway.host import Seconds

log = structlog.get_logger()

SAME_S: Final = 1.0
"""A signal within this time after the first is the same one, not a second wish: `timeout` sends its signal to
the command and then to the group that the command is in."""


async def first_of(*events: asyncio.Event) -> None:
    """Until one of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


class Stop:
    """Waits for a signal, or for the loss of the shard. A second signal, later than SAME_S, ends the process
    at once."""

    def __init__(
        self,
        opening: asyncio.Task[Any],
        now_s: Seconds = time.monotonic,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """`opening` is cancelled by a signal that comes before the gateway is open: it may wait for long.
        `now_s` is a monotonic clock; `end` takes the exit code of a process that ends at once."""
        self.reason = "shard lost"
        self.is_open = False
        self.has_cancelled = False
        self.code = Exit.FAILED
        self._opening = opening
        self._now_s = now_s
        self._end = end
        self._first_s = 0.0
        self._requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_signal, signal.SIGTERM, Exit.OK)
        # Until there is something to reload: the default would end the process.
        loop.add_signal_handler(signal.SIGHUP, log.info, "gateway.nothing_to_reload")
        loop.add_signal_handler(signal.SIGINT, self._on_signal, signal.SIGINT, Exit.INTERRUPTED)

    async def wait(self, lost: asyncio.Event) -> Exit:
        await first_of(self._requested, lost)
        return self.code

    def _on_signal(self, number: signal.Signals, code: Exit) -> None:
        if self._requested.is_set():
            if self._now_s() - self._first_s > SAME_S:
                reason = "a second signal: requests under way were cut off"
                log.warning("gateway.killed", signal=number.name, reason=reason)
                self._end(code or Exit.FAILED)
            return
        self.reason, self.code, self._first_s = number.name, code, self._now_s()
        self._requested.set()
        if not self.is_open:
            self.has_cancelled = True
            self._opening.cancel()
