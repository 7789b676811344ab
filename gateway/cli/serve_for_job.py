"""A gateway for one job: no client can connect, and it ends with the command that has started it.

`python -m gateway.cli.serve_for_job` reads one line of JSON from stdin, a `ServeRequest`, and ends in order
when stdin ends: so it never outlives that command, however it died. Each line on stdout is a JSON object with
one key:

| key   | value                                                                           |
|-------|---------------------------------------------------------------------------------|
| note  | a sentence for the operator, before a wait                                      |
| ready | true: jobs may connect                                                          |
| error | the end of a gateway that failed: one sentence, and the exit code that fits it  |
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import uvloop

from gateway.assembly import running_gateway
from gateway.cli.exits import Exit
from gateway.cli.process import relax_collector, tune_allocator, tune_collector
from gateway.cli.stop import first_of
from gateway.coordination.absence import Absence
from gateway.coordination.journal import OwnershipLost
from gateway.network.acceptor import ListenFailed
from gateway.network.unix_sockets import SocketFailed
from gateway.settings import Admin, ConfigError, Housekeeping, Internal, Listeners, Settings
from gateway.telemetry.logs import log_loop_errors, set_up_logs
from ledger.errors import StoreError, StoreLocked

Say: TypeAlias = Callable[[str, object], None]

NO_LISTENER: Final = Listeners(listen=())
NO_PAGES: Final = Admin(listen="")
NEVER: Final = Housekeeping(merge_runs=0)
KEPT_MINUTES: Final = 100 * 366 * 24 * 60
"""For so long committed offsets stay, the longest that can be set: the command may have been given less of
the settings than `serve`, which says how long they do."""


class ServeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`socket`: where jobs connect, in a directory of its own, which is removed in the end."""

    settings: dict[str, object]
    socket: str


def request_line(settings: Settings, socket: str) -> bytes:
    """As stdin takes it. It has the secrets of the settings."""
    return msgspec.json.encode({"settings": settings, "socket": socket}) + b"\n"


def main() -> int:
    """Serve until stdin ends. The exit code."""
    # Ctrl-C on a terminal is for the command that has started this one: it closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServeRequest)
    settings = for_job(msgspec.convert(request.settings, Settings), request.socket)
    set_up_logs(settings.log)
    tune_allocator(os.environ)
    relax_collector()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_served(settings, _say))
    except (ConfigError, ListenFailed, SocketFailed) as error:
        return _failed(error, Exit.USAGE)
    except (StoreLocked, OwnershipLost) as error:
        return _failed(error, Exit.IN_USE)
    except StoreError as error:
        return _failed(error, Exit.STORE)
    finally:
        # A command that was killed does not remove it.
        shutil.rmtree(Path(request.socket).parent, ignore_errors=True)


def for_job(settings: Settings, socket: str) -> Settings:
    """Those of a gateway that no client can connect to."""
    return msgspec.structs.replace(
        settings,
        groups=msgspec.structs.replace(settings.groups, offsets_retention_minutes=KEPT_MINUTES),
        listeners=NO_LISTENER,
        admin=NO_PAGES,
        housekeeping=NEVER,
        internal=Internal(socket=socket),
    )


async def _served(settings: Settings, say: Say) -> Exit:
    ending = _Ending()
    try:
        async with running_gateway(settings, absence=Absence(lambda note: say("note", note))) as gateway:
            ending.is_open = True
            tune_collector()
            say("ready", True)
            await ending.wait(gateway.ended)
            if gateway.ended.is_set():
                raise OwnershipLost(gateway.shard.why_not)
    except asyncio.CancelledError:
        if not ending.has_cancelled:
            raise
    return Exit.OK


class _Ending:
    """Waits for the end of stdin, or for SIGTERM; before the gateway is open these end its start."""

    def __init__(self) -> None:
        opening = asyncio.current_task()
        assert opening is not None
        self.is_open = False
        self.has_cancelled = False
        self._opening = opening
        self._loop = asyncio.get_running_loop()
        self._requested = asyncio.Event()
        log_loop_errors(self._loop)
        self._loop.add_signal_handler(signal.SIGTERM, self._end)
        threading.Thread(target=self._end_with_stdin, name="stdin", daemon=True).start()

    async def wait(self, lost: asyncio.Event) -> None:
        await first_of(self._requested, lost)

    def _end_with_stdin(self) -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        with suppress(RuntimeError):
            # The loop is closed if the gateway has ended by itself.
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._requested.set()
        if not self.is_open:
            self.has_cancelled = True
            self._opening.cancel()


def _failed(error: Exception, code: Exit) -> int:
    _say("error", [str(error), int(code)])
    return code


def _say(key: str, value: object) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps({key: value}), flush=True)  # noqa: T201 - it is what the command reads


if __name__ == "__main__":
    sys.exit(main())
