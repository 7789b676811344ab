"""Starts jobs in processes of their own from a command, and reads what they say."""

import dataclasses
import json
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Final

from gateway.cli.client import ClientError
from gateway.cli.job_gateway import reached
from gateway.cli.output import UsageError, talk
from gateway.host import child_command, child_environment
from gateway.housekeeping.merging import JOB_MODULE, job_options
from gateway.internal.listener import bindings_of, socket_path
from gateway.settings import Settings
from gateway.store_assembly import urls_of
from ledger.errors import StoreError
from pipeline.engines.spark_context import SUBMITTED

LOCAL, SPARK = "local", "spark"
ENGINES: Final = (LOCAL, SPARK)
END_S: Final = 15.0
"""Spark's Java takes some seconds to end."""
TAIL_LINES: Final = 3
LINE_BYTES: Final = 4_096
DRAIN_S: Final = 1.0
USAGE, STORE = 2, 4
"""Exit codes of a job process."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files for an SSL:// address of internal.listen."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What carries a job out, by default Spark below spark-submit, and a process of this machine elsewhere.
    `master` and `conf`: of Spark; `conf` has NAME=VALUE as given."""

    engine: str = ""
    master: str = ""
    conf: Sequence[str] = ()

    def request(self) -> dict[str, Any]:
        """The part of a job's request. UsageError if the options contradict each other."""
        engine = self.engine or (SPARK if SUBMITTED in os.environ else LOCAL)
        if engine not in ENGINES:
            raise UsageError(f"--engine {engine}: this build has {', '.join(ENGINES)}")
        if engine == LOCAL and (self.master or self.conf):
            flag = "--master" if self.master else "--spark-conf"
            raise UsageError(f"{flag} is for --engine spark")
        conf: dict[str, str] = {}
        for each in self.conf:
            name, found, value = each.partition("=")
            if not found or not name.startswith("spark."):
                raise UsageError(f"--spark-conf {each}: write a property of Spark as spark.NAME=VALUE")
            conf[name] = value
        return {"engine": engine, "spark": {"master": self.master, "conf": conf}}


def job_request(settings: Settings, tls: TlsFiles) -> dict[str, Any]:
    """What every job needs: how the gateway and the stores are reached. UsageError if nothing says where the
    gateway is."""
    return {"peer": _peer(settings, tls), "far": job_options(settings.storage) or {}}


@contextmanager
def ready_request(settings: Settings, tls: TlsFiles) -> Iterator[dict[str, Any]]:
    """The same; if no gateway runs on this ledger, one does until the context ends. Errors: as `reached`."""
    with reached(settings, _place(settings, tls)) as peer:
        yield {"peer": peer, "far": job_options(settings.storage) or {}}


def job_lines(
    request: Mapping[str, Any], started: Callable[[subprocess.Popen[str]], None] = lambda _: None
) -> Iterator[tuple[str, Any]]:
    """Run a job to its summary: what it says, as pairs of key and value; its notes are printed. The process
    ends with the iterator; `started` gets it, so that another thread can close its stdin, which ends it too.

    Errors: ClientError if it fails, UsageError if it cannot be carried out here, StoreError if its store is
    out of reach.
    """
    with _started() as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        started(process)
        tail = _Tail(process.stderr)
        with suppress(BrokenPipeError):
            # What it wrote before it ended says why.
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            said = _said(line)
            if said is None:
                tail.add(line)
                continue
            ((key, value),) = said.items()
            if key == "error":
                raise _error(process, str(value))
            if key == "note":
                talk(str(value))
                continue
            yield key, value
            if key == "summary":
                return
        raise ClientError(f"the job ended with {process.wait()}{tail.text()}")


def _error(process: subprocess.Popen[str], sentence: str) -> Exception:
    try:
        code = process.wait(END_S)
    except subprocess.TimeoutExpired:
        code = 1
    return {USAGE: UsageError, STORE: StoreError}.get(code, ClientError)(sentence)


class _Tail:
    """The last lines that a process writes besides its own: where it failed. They are read all the time, as
    it would wait otherwise."""

    def __init__(self, stderr: IO[str]) -> None:
        self._stderr = stderr
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._reader = threading.Thread(target=self._read, name="stderr of the job", daemon=True)
        self._reader.start()

    def add(self, line: str) -> None:
        if line.strip():
            self._lines.append(line.strip())

    def text(self) -> str:
        """After the end of the process; empty, or with a colon before it."""
        self._reader.join(DRAIN_S)
        lines = list(self._lines)
        return f": {' '.join(lines)}" if lines else ""

    def _read(self) -> None:
        with suppress(ValueError, OSError):
            while line := self._stderr.readline(LINE_BYTES):
                self.add(line)


@contextmanager
def _started() -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this one, as its stdin does."""
    try:
        process = subprocess.Popen(
            child_command(["-m", JOB_MODULE]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(),
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise ClientError(f"the job cannot be started: {error.strerror or error}") from error
    try:
        yield process
    finally:
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _said(line: str) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and len(said) == 1 else None


def _peer(settings: Settings, tls: TlsFiles) -> dict[str, Any]:
    place = _place(settings, tls)
    if place is None:
        raise UsageError(
            "this gateway has no internal listener: without a data directory set internal.socket or "
            "internal.listen, for it and for this command"
        )
    return place


def _place(settings: Settings, tls: TlsFiles) -> dict[str, Any] | None:
    """By its Unix socket, if it has one; else by the first address of internal.listen."""
    path = socket_path(settings.internal, urls_of(settings.storage).directory)
    if path is not None:
        return {"path": str(path)}
    for binding in bindings_of(settings):
        files = dataclasses.asdict(_whole(tls)) if binding.is_tls else {}
        return {"host": binding.bind.host, "port": binding.bind.port, **files}
    return None


def _whole(tls: TlsFiles) -> TlsFiles:
    """With the key, which may be in the file of the certificate. UsageError if a file is absent."""
    if not (tls.ca and tls.certificate):
        raise UsageError(
            "internal.listen is SSL://: give --tls-ca, and --tls-cert of one of internal.principals"
        )
    return dataclasses.replace(tls, key=tls.key or tls.certificate)
