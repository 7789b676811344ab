"""Child processes of tests: own process group, stopped by their own handle, never by name."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path


def stop_group(process: subprocess.Popen[bytes], timeout_s: float = 20.0) -> int:
    """SIGTERM to the whole group, SIGKILL after `timeout_s`; the exit code."""
    signal_group(process, signal.SIGTERM)
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> int:
    """SIGKILL to the whole group, children that outlived their parent included; the exit code."""
    signal_group(process, signal.SIGKILL)
    return process.wait(10.0)


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """The process must have been started with `start_new_session=True`: its pid is its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def tail_of(path: Path, max_bytes: int = 8192) -> str:
    """The last bytes of a log, from a line's beginning; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - max_bytes))
        text = file.read().decode(errors="replace")
    return text if size <= max_bytes else text.partition("\n")[2]
