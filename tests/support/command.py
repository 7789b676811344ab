"""The `dragoman` command as a child process, against a running gateway."""

import subprocess
import sys

from tests.support.gateway import Gateway

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 60.0


def run(gateway: Gateway, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Its exit code and output. Errors: subprocess.TimeoutExpired after `WAIT_S`."""
    command = [*COMMAND, *arguments, "-b", gateway.bootstrap]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_S)
