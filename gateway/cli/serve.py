"""`dragoman serve`: run a gateway until a signal stops it."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop
from rich.console import Console
from rich.markup import escape

from gateway.addresses import PLAINTEXT, Address
from gateway.assembly import RunningGateway, running_gateway
from gateway.cli.exits import Exit
from gateway.cli.process import (
    has_own_allocator,
    relax_collector,
    tend_memory,
    tune_allocator,
    tune_collector,
)
from gateway.cli.stop import Stop
from gateway.cli.systemd import READY, STOPPING, notify, reloading
from gateway.config import given_by_command, load_settings
from gateway.coordination.journal import OwnershipLost
from gateway.network.acceptor import ListenFailed
from gateway.network.unix_sockets import SocketFailed
from gateway.settings import ConfigError, Settings, Storage
from gateway.store_assembly import StoreUrls
from gateway.telemetry.logs import log_loop_errors, on_terminal, set_up_logs, warn_of_variables
from gateway.version import product_version
from ledger.errors import StoreError, StoreLocked

log = structlog.get_logger()

HINTS: Final = """\
[bold]Dragoman[/bold] {version} listens on {listeners} (data: {data}).{advertised} Any Kafka client works:
  produce   echo hello | kcat -P -b {bootstrap}{options} -t greetings
  consume   kcat -C -b {bootstrap}{options} -t greetings -o beginning -e"""
DEMO_HINT: Final = "  or both   {command} demo --bootstrap {bootstrap}"
LIVELY: Final = ("debug", "info")
"""Log levels at which a gateway greets on a terminal."""


def run_gateway(
    config: str | None, flags: Mapping[str, Any], assignments: Sequence[str], ready_file: str | None
) -> Exit:
    """Load settings and serve. Prints one sentence for an error and returns the exit code."""
    try:
        given = given_by_command(flags, assignments)
        settings = load_settings(given, os.environ, Path(config) if config else None)
        set_up_logs(settings.log)
        warn_of_variables(os.environ)
        tune_allocator(os.environ)
        relax_collector()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_served(settings, Path(ready_file) if ready_file else None))
    except ConfigError as error:
        return _complain(error, Exit.USAGE)
    except (ListenFailed, SocketFailed) as error:
        return _complain(error, Exit.IN_USE if error.in_use else Exit.USAGE)
    except StoreLocked as error:
        return _complain(error, Exit.IN_USE)
    except StoreError as error:
        return _complain(error, Exit.STORE)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _served(settings: Settings, ready_file: Path | None) -> Exit:
    opening = asyncio.current_task()
    assert opening is not None
    stop = Stop(opening)
    try:
        return await _serve(settings, ready_file, stop)
    except asyncio.CancelledError:
        if not stop.has_cancelled:
            raise
        opening.uncancel()
        log.info("gateway.stopped", reason=stop.reason)
        return stop.code


async def _serve(settings: Settings, ready_file: Path | None, stop: Stop) -> Exit:
    log_loop_errors(asyncio.get_running_loop())
    if ready_file is not None:
        # The file of a gateway that was killed must not be taken for that of this one.
        ready_file.unlink(missing_ok=True)
    async with running_gateway(settings) as gateway:
        stop.is_open = True
        if ready_file is not None:
            write_ready_file(ready_file, gateway)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, gateway)
        if on_terminal() and settings.log.format != "json" and settings.log.level in LIVELY:
            _greet(settings, gateway)
        services = gateway.services
        log.info(
            "gateway.ready",
            version=product_version(),
            cluster_id=services.cluster_id,
            node_id=services.node_id,
            **_places(settings, gateway),
        )
        notify(READY, f"STATUS=serving {', '.join(_listening_on(gateway))}")
        tune_collector()
        in_huge_pages = not has_own_allocator(os.environ)
        tending = asyncio.create_task(
            tend_memory(services.metrics.moved_bytes, in_huge_pages=in_huge_pages), name="memory"
        )
        code = await stop.wait(gateway.ended)
        if code is Exit.FAILED and isinstance(gateway.shard.broken, OwnershipLost):
            # Another gateway has the shard now, as one that holds the directory would have it.
            code = Exit.IN_USE
            stop.reason = gateway.shard.why_not
            _say(stop.reason)
        tending.cancel()
        notify(STOPPING)
        log.info("gateway.stopping", reason=stop.reason)
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    log.info("gateway.stopped")
    return code


def _reload(gateway: RunningGateway) -> None:
    notify(*reloading())
    gateway.reload()
    notify(READY)


def write_ready_file(path: Path, gateway: RunningGateway) -> None:
    """Atomically: a file that exists is complete."""
    listeners = [
        {"name": listener.name, "host": bound.host or listener.host, "port": bound.port}
        for listener, bound in zip(gateway.listeners, gateway.bound, strict=True)
    ]
    admin = gateway.admin
    content = {
        "pid": os.getpid(),
        "listeners": listeners,
        "admin": None if admin is None else {"host": admin.host, "port": admin.port},
        "internal": {
            "socket": None if gateway.internal.socket is None else str(gateway.internal.socket),
            "listeners": [{"host": bound.host, "port": bound.port} for bound in gateway.internal.bound],
        },
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(content))
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write the ready file {path}: {error.strerror}") from error


def _listening_on(gateway: RunningGateway) -> list[str]:
    """Each NAME://HOST:PORT, as it was bound."""
    return [
        f"{listener.name}://{bound}" for listener, bound in zip(gateway.listeners, gateway.bound, strict=True)
    ]


def _places(settings: Settings, gateway: RunningGateway) -> dict[str, object]:
    """Addresses and data directory, for the log."""
    return {
        "listeners": _listening_on(gateway),
        "advertised": [str(Address(listener.host, listener.port)) for listener in gateway.listeners],
        "admin": None if gateway.admin is None else str(gateway.admin),
        **_internal(gateway),
        **_stores(settings.storage, gateway.urls),
    }


def _internal(gateway: RunningGateway) -> dict[str, object]:
    """Where jobs connect, if anywhere."""
    internal = gateway.internal
    places = [str(address) for address in internal.bound]
    if internal.socket is not None:
        places.append(str(internal.socket))
    return {"internal": places} if places else {}


def _stores(storage: Storage, urls: StoreUrls) -> dict[str, str]:
    """Where everything is. A URL that could be opened holds no secret."""
    given = {"metadata": storage.metadata, "data": storage.data, "image": storage.image}
    directory = {} if urls.directory is None else {"data_dir": str(urls.directory)}
    return directory | {name: value for name, value in given.items() if value}


def _greet(settings: Settings, gateway: RunningGateway) -> None:
    """Print hints for a user who has just started it on a terminal."""
    listener = next((known for known in gateway.listeners if known.name == PLAINTEXT), gateway.listeners[0])
    bootstrap = str(Address(listener.host, listener.port))
    bound = [str(address) for address in gateway.bound]
    advertised = [str(Address(one.host, one.port)) for one in gateway.listeners]
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(
        HINTS.format(
            version=product_version(),
            listeners=", ".join(f"[green]{escape(place)}[/green]" for place in _listening_on(gateway)),
            advertised=f" It advertises [green]{escape(', '.join(advertised))}[/green]."
            if advertised != bound
            else "",
            data=escape(_shown_places(settings.storage)),
            bootstrap=escape(bootstrap),
            options="" if listener.name == PLAINTEXT else f" -X security.protocol={listener.name}",
        )
    )
    if listener.name == PLAINTEXT:
        console.print(DEMO_HINT.format(command=escape(_own_command()), bootstrap=escape(bootstrap)))
    if gateway.admin is not None:
        admin = escape(str(gateway.admin))
        console.print(f"  health    http://{admin}/readyz   metrics  http://{admin}/metrics")


def _shown_places(storage: Storage) -> str:
    metadata = f", metadata: {storage.metadata}" if storage.metadata else ""
    return f"{storage.data or storage.data_dir}{metadata}"


def _own_command() -> str:
    """How to call this program again from any directory."""
    if shutil.which("dragoman"):
        return "dragoman"
    program = Path(sys.argv[0])
    if program.name == "dragoman":
        return shlex.quote(str(program.absolute()))
    return f"{shlex.quote(sys.executable)} -m gateway.cli.main"


def _complain(error: Exception, code: Exit) -> Exit:
    _say(str(error))
    return code


def _say(reason: str) -> None:
    # What started this process may see no more than its exit code.
    with suppress(OSError, ValueError):
        print(f"dragoman: {reason}", file=sys.stderr)  # noqa: T201
