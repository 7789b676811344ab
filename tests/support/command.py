"""The `dragoman` command against a running gateway: as a child process, or, when nothing depends on that, in
this one, which takes a tenth of the time."""

import subprocess
import sys
from typing import Protocol

from typer.testing import CliRunner

from gateway.cli.main import app
from tests.support.gateway import Gateway

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 60.0


def run(gateway: Gateway, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Its exit code and output. Errors: subprocess.TimeoutExpired after `WAIT_S`."""
    command = [*COMMAND, *arguments, "-b", gateway.bootstrap]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_S)


class Reachable(Protocol):
    @property
    def bootstrap(self) -> str: ...


def run_here(endpoint: Reachable, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same without a process of its own, and without stdin."""
    done = CliRunner().invoke(app, [*arguments, "-b", endpoint.bootstrap])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
