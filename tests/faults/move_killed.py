"""Runs `dragoman ledger move` many times, and lets it die by SIGKILL right after one of its changes.

    python -m tests.faults.move_killed < JSON of [[NUMBER, [ARGUMENT, ...]], ...]

Each in a process of its own, one after the other. Changes are puts of blobs and of metadata, counted from 1;
with 0 the command ends by itself. Prints a JSON list of exit codes, as subprocess has them.
"""

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from adapters.blobs.files import FileBlobs
from adapters.metadata.sqlite import SqliteMetadata
from gateway.cli import ledger_move as _ledger_move  # noqa: F401 - once for all processes
from gateway.cli.main import app

Method = Callable[..., Awaitable[Any]]


class Countdown:
    def __init__(self, number: int) -> None:
        self._left = number

    def after(self, method: Method) -> Method:
        async def counted(*args: Any) -> Any:
            result = await method(*args)
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def run(number: int, arguments: list[str]) -> int:
    """The exit code of a child that runs the command."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    countdown = Countdown(number)
    for store in (FileBlobs, SqliteMetadata):
        setattr(store, "put", countdown.after(store.put))  # noqa: B010 - mypy knows that it is a method
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    app(arguments)
    os._exit(os.EX_SOFTWARE)


if __name__ == "__main__":
    sys.stdout.write(json.dumps([run(*job) for job in json.load(sys.stdin)]))
