"""Child processes of tests: own process group, stopped by their own handle, never by name."""

import contextlib
import ctypes
import os
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple


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


def without_power() -> None:
    """As `preexec_fn`: root with the permissions of any user (CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    dropped)."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):
            assert libc.prctl(24, capability, 0, 0, 0) == 0


def tail_of(path: Path, max_bytes: int = 8192) -> str:
    """The last bytes of a log, from a line's beginning; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - max_bytes))
        text = file.read().decode(errors="replace")
    return text if size <= max_bytes else text.partition("\n")[2]


class Descendant(NamedTuple):
    """A process that another one has started, or one of those."""

    pid: int
    command: str


def descendants(pid: int) -> list[Descendant]:
    """Of a process, as /proc has them now."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[Descendant] = []
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            waiting.append(child)
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(Descendant(child, command))
    return found
