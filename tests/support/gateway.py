"""A real `dragoman serve` as a child process on free ports.

with running_gateway(tmp_path) as gateway:
    Producer({"bootstrap.servers": gateway.bootstrap})
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.ports import with_port
from tests.support.processes import kill_group, stop_group, tail_of
from tests.support.versions import ROOT

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class GatewayNotReady(RuntimeError):
    """The gateway ended or stayed silent before it was ready; carries its exit code and log."""

    def __init__(self, exit_code: int | None, log: str) -> None:
        state = "still starting" if exit_code is None else f"exit code {exit_code}"
        super().__init__(f"the gateway did not become ready ({state}):\n{log}")
        self.exit_code = exit_code
        self.log = log


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ready:
    """What the ready file says."""

    pid: int
    listeners: tuple[Listener, ...]
    admin: Listener | None


def read_ready(text: str) -> Ready:
    """Errors: ValueError or KeyError when the text is not a whole ready file."""
    content = json.loads(text)
    listeners = tuple(_listener(entry, "PLAINTEXT") for entry in content["listeners"])
    if not listeners:
        raise ValueError("a ready file without listeners")
    admin = content.get("admin")
    return Ready(int(content["pid"]), listeners, _listener(admin, "admin") if admin else None)


def _listener(entry: Mapping[str, Any], default_name: str) -> Listener:
    return Listener(str(entry.get("name", default_name)), str(entry["host"]), int(entry["port"]))


class Gateway:
    """One gateway process at a time over one data directory; it keeps its ports over restarts."""

    tree = ROOT
    """The checkout whose code runs."""

    def __init__(
        self,
        directory: Path,
        options: Sequence[str] = (),
        env: Mapping[str, str] = NO_ENVIRONMENT,
        listen: str = "PLAINTEXT://127.0.0.1:0",
        data_dir: Path | None = None,
    ) -> None:
        """`directory` takes log and ready file; data goes to `data_dir`, by default below it."""
        self.directory = directory
        self.data_dir = data_dir or directory / "data"
        self.log_path = directory / "gateway.log"
        self.options = list(options)
        self.env = dict(env)
        self._listen = with_port(listen)
        self._admin = with_port("127.0.0.1:0")
        self._ready: Ready | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ready(self) -> Ready:
        if self._ready is None:
            raise RuntimeError("the gateway was never ready")
        return self._ready

    @property
    def host(self) -> str:
        return self.ready.listeners[0].host

    @property
    def port(self) -> int:
        return self.ready.listeners[0].port

    @property
    def bootstrap(self) -> str:
        return self.ready.listeners[0].address

    @property
    def admin(self) -> Listener:
        if self.ready.admin is None:
            raise RuntimeError("the ready file names no admin address")
        return self.ready.admin

    @property
    def pid(self) -> int:
        return self._running().pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self, max_bytes: int = 8192) -> str:
        return tail_of(self.log_path, max_bytes)

    def launch(self) -> None:
        """Start the process without waiting for it."""
        if self.is_running():
            raise RuntimeError("the gateway runs already")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._ready_path.unlink(missing_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.tree,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start and wait until ready. Errors: GatewayNotReady."""
        self.launch()
        self.wait_until_ready(timeout_s)

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._read_ready_file():
            exit_code = self._running().poll()
            if exit_code is not None or time.monotonic() > deadline:
                self.kill9()
                raise GatewayNotReady(exit_code, self.log_tail())
            time.sleep(0.02)

    def wait_for_exit(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code of a process that ends by itself. Errors: subprocess.TimeoutExpired."""
        return self._running().wait(timeout_s)

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, SIGKILL after the timeout; the exit code (-9 when it had to be killed)."""
        return stop_group(self._running(), timeout_s)

    def kill9(self) -> None:
        """SIGKILL to the gateway and all its workers, at once."""
        kill_group(self._running())

    def restart(self) -> None:
        """Start again on the same ports and data, after a SIGTERM if it still runs."""
        if self.is_running():
            self.terminate()
        self.start()

    def stop(self) -> None:
        """End it if it still runs; for the end of a test."""
        if self.is_running():
            self.terminate(timeout_s=5.0)

    @property
    def _ready_path(self) -> Path:
        return self.directory / "ready.json"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the gateway was never started")
        return self._process

    def _command(self) -> list[str]:
        addresses = ["--listen", self._listen, "--admin", self._admin]
        paths = ["--data-dir", str(self.data_dir), "--ready-file", str(self._ready_path)]
        return [sys.executable, "-m", "gateway.cli.main", "serve", *addresses, *paths, *self.options]

    def _read_ready_file(self) -> bool:
        try:
            self._ready = read_ready(self._ready_path.read_text())
        except (FileNotFoundError, ValueError):
            return False
        scheme = self._listen.partition("://")[0]
        self._listen = f"{scheme}://{self.bootstrap}"
        if self._ready.admin is not None:
            self._admin = self._ready.admin.address
        return True


@contextmanager
def running_gateway(
    directory: Path, options: Sequence[str] = (), env: Mapping[str, str] = NO_ENVIRONMENT
) -> Iterator[Gateway]:
    gateway = Gateway(directory, options, env)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.stop()


GatewayFactory = Callable[..., Gateway]


@pytest.fixture
def gateway_factory(tmp_path: Path) -> Iterator[GatewayFactory]:
    """Makes gateways (not started; arguments as `Gateway` after its directory), ends them all."""
    made: list[Gateway] = []

    def make(*arguments: Any, **options: Any) -> Gateway:
        made.append(Gateway(tmp_path / f"gateway-{len(made)}", *arguments, **options))
        return made[-1]

    yield make
    for gateway in made:
        gateway.stop()
        # Captured: pytest shows it only when the test has failed.
        sys.stdout.write(f"-- log of {gateway.directory.name}\n{gateway.log_tail()}\n")


@pytest.fixture
def gateway(gateway_factory: GatewayFactory) -> Gateway:
    """A ready gateway over an empty data directory."""
    started = gateway_factory()
    started.start()
    return started
