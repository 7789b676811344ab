"""A real etcd of one member on loopback: Debian's package, or the `etcd` on PATH.

`python -m tests.support.etcd` fetches it beforehand. What the adapter has no calls for (users, roles, alarms,
a look past the adapter) goes through etcd's JSON gateway.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest

from adapters.metadata.etcd_address import Login
from tests.support.certificates import Authority
from tests.support.debian import PackageMissing, UnpackedProgram, unpacked_program
from tests.support.ports import EndedEarly, free_ports, with_other_ports
from tests.support.processes import kill_group, stop_group, tail_of

START_TIMEOUT_S: Final = 60.0
CALL_TIMEOUT_S: Final = 30.0
HOST: Final = "127.0.0.1"
ROOT: Final = Login("root", "the password of root")
# The only member elects itself after that time.
TIMING: Final = ("--heartbeat-interval=20", "--election-timeout=200")
IN_MEMORY: Final = Path("/dev/shm")
"""Each write is synced, and other tests use the disk."""
NEEDED_BYTES: Final = 2 * 1024**3
MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024

OLDEST: Final = (3, 4)
_VERSION: Final = re.compile(r"etcd Version: (\d+)\.(\d+)\.")

_prefixes = count()


def etcd_program() -> UnpackedProgram:
    """Errors: PackageMissing, also of an attempt before."""
    found = _found_program()
    if isinstance(found, PackageMissing):
        raise found
    return found


@lru_cache
def _found_program() -> UnpackedProgram | PackageMissing:
    on_path = shutil.which("etcd")
    if on_path is not None and is_new_enough(on_path):
        return UnpackedProgram(Path(on_path), os.environ)
    try:
        return unpacked_program("etcd-server", "etcd")
    except PackageMissing as error:
        return error


def is_new_enough(program: str) -> bool:
    """As the adapter wants it."""
    try:
        shown = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=CALL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = _VERSION.search(shown.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= OLDEST


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """No setting of etcd but those that a test gives it."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("ETCD_") or name == "ETCD_UNSUPPORTED_ARCH"
    }


@dataclass(frozen=True, slots=True)
class ServedTls:
    """A certificate for the server, which asks clients for one of the same CA."""

    authority: Authority

    def flags(self) -> list[str]:
        issued = self.authority.server()
        files = [f"--cert-file={issued.certificate}", f"--key-file={issued.key}"]
        return [*files, "--client-cert-auth", f"--trusted-ca-file={self.authority.file}"]


class EtcdServer:
    """One member, with everything it writes below `directory`."""

    def __init__(self, directory: Path, tls: ServedTls | None = None, flags: Sequence[str] = ()) -> None:
        self._directory = directory
        self._tls = tls
        self._flags = list(flags)
        self._program = etcd_program()
        self._log = directory / "etcd.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._login: Login | None = None
        self.port = self.peer_port = self._metrics_port = 0

    @property
    def endpoint(self) -> str:
        return f"{HOST}:{self.port}"

    def url(self, *endpoints: str) -> str:
        """With a prefix that no other test has, by way of this server or of proxies in front of it."""
        return f"etcd://{','.join(endpoints or [self.endpoint])}/test/{next(_prefixes)}"

    @property
    def data(self) -> Path:
        """What it keeps, and what a backup of a stopped member copies."""
        return self._directory / "data"

    def start(self) -> None:
        """Serves when this returns. Errors: RuntimeError with the log."""
        with_other_ports(self._start)

    def _start(self) -> None:
        self.take_ports()
        # Of a member that has found one of its ports taken.
        shutil.rmtree(self.data, ignore_errors=True)
        self.launch()

    def launch(self) -> None:
        """Start on the ports and data of before."""
        self.spawn()
        self.until_healthy()

    def initial_cluster(self, peers: str) -> list[str]:
        """Flags with all members and the URLs that they have for each other; `peers` is its own."""
        return [f"--initial-cluster=default={peers}"]

    def spawn(self) -> None:
        """The process alone."""
        clients = f"{'https' if self._tls else 'http'}://{self.endpoint}"
        peers = f"http://{HOST}:{self.peer_port}"
        command = [
            str(self._program.path),
            f"--data-dir={self.data}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            *self.initial_cluster(peers),
            f"--listen-metrics-urls=http://{HOST}:{self._metrics_port}",
            *TIMING,
            *(self._tls.flags() if self._tls is not None else []),
            *self._flags,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._directory,
                env=without_settings(self._program.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def until_healthy(self) -> None:
        """It has a leader, which may be itself. Errors: RuntimeError with the log."""
        process = self._process
        assert process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_healthy():
            has_ended = process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                self.kill9()
                raise (EndedEarly if has_ended else RuntimeError)(
                    f"etcd did not come up:\n{tail_of(self._log)}"
                )
            time.sleep(0.05)

    def take_ports(self) -> None:
        self.port, self.peer_port, self._metrics_port = free_ports(3)

    def stop(self) -> None:
        if self._process is not None:
            stop_group(self._process)
            self._process = None

    def kill9(self) -> None:
        if self._process is not None:
            kill_group(self._process)
            self._process = None

    def ask(self, path: str, request: Mapping[str, object] = MappingProxyType({})) -> Any:
        """One call of the JSON gateway of a server without TLS. Errors: urllib.error.HTTPError."""
        headers = {}
        if self._login is not None and path != "auth/authenticate":
            login = {"name": self._login.user, "password": self._login.password}
            headers["Authorization"] = self.ask("auth/authenticate", login)["token"]
        data = json.dumps(dict(request)).encode()
        return _fetched(urllib.request.Request(f"http://{self.endpoint}/v3/{path}", data, headers))

    def value(self, name: str) -> bytes | None:
        """Of a key with its prefix, past the adapter."""
        found = self.ask("kv/range", {"key": _base64(name)}).get("kvs", [])
        return base64.b64decode(found[0].get("value", "")) if found else None

    def add_role(self, role: str, permission: str, prefix: str) -> None:
        """May do this (READ, WRITE, READWRITE) to the keys with the prefix."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        permitted = {"permType": permission, "key": _base64(prefix), "range_end": _base64(end)}
        self.ask("auth/role/add", {"name": role})
        self.ask("auth/role/grant", {"name": role, "perm": permitted})

    def add_user(self, login: Login, role: str) -> None:
        self.ask("auth/user/add", {"name": login.user, "password": login.password})
        self.ask("auth/user/grant", {"user": login.user, "role": role})

    def enable_users(self, users: Mapping[Login, str]) -> None:
        """By their roles. Authentication is on from now on, and `ask` is root."""
        for login, role in {ROOT: "root", **users}.items():
            self.add_user(login, role)
        self.ask("auth/enable")
        self._login = ROOT

    def _is_healthy(self) -> bool:
        try:
            return bool(_fetched(f"http://{HOST}:{self._metrics_port}/health")["health"] == "true")
        except OSError:
            return False


def _fetched(request: urllib.request.Request | str) -> Any:
    """Through no proxy, whatever the environment says."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=CALL_TIMEOUT_S) as response:
        return json.load(response)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def running_etcd(tls: ServedTls | None = None, flags: Sequence[str] = ()) -> Iterator[EtcdServer]:
    """A server of its own, stopped and removed at the end. Skips where none can be had."""
    with tempfile.TemporaryDirectory(prefix="dragoman-etcd-", dir=place_of_servers()) as directory:
        try:
            server = EtcdServer(Path(directory), tls, flags)
        except PackageMissing as error:
            pytest.skip(str(error))
        try:
            server.start()
            yield server
        finally:
            server.kill9()


def place_of_servers() -> Path | None:
    """None: where temporary files are."""
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > NEEDED_BYTES:
        return IN_MEMORY
    return None


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """One etcd for the whole run, without users and TLS; tests have prefixes of their own. It takes the
    largest values of the contract suites, which are larger than any that a gateway writes."""
    with running_etcd(flags=[f"--max-request-bytes={MAX_REQUEST_BYTES}"]) as server:
        yield server


def main(arguments: Sequence[str]) -> None:
    if arguments:
        raise SystemExit("usage: python -m tests.support.etcd")
    try:
        sys.stderr.write(f"etcd: {etcd_program().path}\n")
    except PackageMissing as error:
        sys.stderr.write(f"Tests against etcd will be skipped: {error}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
