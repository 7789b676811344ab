"""A command on a pseudo-terminal: what a person sees, and what typing does.

with Terminal(["dragoman", "produce", "t"]) as terminal:
    terminal.wait_for("Ctrl-D ends")
    terminal.write("one\n")
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

WAIT_S = 30.0
CTRL_C = "\x03"
CTRL_D = "\x04"


class Terminal:
    """stdin, stdout and stderr of a process are one terminal of its own, `columns` wide."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, columns: int = 80
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm", **(env or {})}
        environment.pop("COLUMNS", None)
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._seen = bytearray()

    @property
    def seen(self) -> str:
        return self._seen.decode(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str, timeout_s: float = WAIT_S) -> None:
        """AssertionError with what was seen instead."""
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline and self._read(), f"no {text!r} in {self.seen!r}"

    def exit_code(self, timeout_s: float = WAIT_S) -> int:
        """Of a process that ends by itself; all that it wrote is in `seen` then."""
        deadline = time.monotonic() + timeout_s
        while self._read():
            assert time.monotonic() < deadline, f"it still runs: {self.seen!r}"
        return self._process.wait(timeout_s)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)
        os.close(self._ours)

    def _read(self) -> bool:
        """Whether the other end is still open."""
        if not select.select([self._ours], [], [], 0.1)[0]:
            return True
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # Linux says EIO when no process has the other end any more
            return False
        self._seen += part
        return bool(part)
