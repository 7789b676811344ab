"""What /proc says of a process, of the kernel's threads and of the machine: CPU seconds and memory."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KIB = 1024
# Fields of /proc/<pid>/stat after the command's name, which may itself hold spaces and brackets.
_UTIME, _STIME, _CUTIME, _CSTIME = 11, 12, 13, 14
_IDLE_FIELDS = (3, 4)  # idle, iowait
_COUNTED_FIELDS = 8  # guest time is counted within user time already


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all its children, those that ended included."""
    return sum(_own_cpu_seconds(member) for member in family(pid))


def _own_cpu_seconds(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text()
    return parse_cpu_ticks(text) / TICKS_PER_SECOND


def alone_cpu_seconds(pid: int) -> float:
    """User and system time of a process without any of its children."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return parse_cpu_ticks(text, (_UTIME, _STIME)) / TICKS_PER_SECOND


_KTHREADD = 2
"""The process whose children are the kernel's threads."""


def kernel_cpu_seconds() -> dict[int, float]:
    """CPU seconds of each thread of the kernel, among them those that write pages back and run the journal of
    a file system. Empty where they cannot be seen (in a container)."""
    try:
        if Path(f"/proc/{_KTHREADD}/comm").read_text() != "kthreadd\n":
            return {}
    except OSError:
        return {}
    found: dict[int, float] = {}
    for thread in _children(Path(f"/proc/{_KTHREADD}/task/{_KTHREADD}")):
        # One that has ended meanwhile has nothing to report.
        with suppress(OSError):
            found[thread] = alone_cpu_seconds(thread)
    return found


def kernel_seconds_between(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """What the kernel's threads used meanwhile; one that has begun meanwhile counts from its beginning."""
    return sum(max(late - before.get(thread, 0.0), 0.0) for thread, late in after.items())


def parse_cpu_ticks(stat: str, counted: Sequence[int] = (_UTIME, _STIME, _CUTIME, _CSTIME)) -> int:
    """utime + stime + cutime + cstime of one /proc/<pid>/stat."""
    fields = stat.rpartition(")")[2].split()
    return sum(int(fields[i]) for i in counted)


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    members = [pid]
    for member in members:
        for task in _list(Path(f"/proc/{member}/task")):
            members += _children(task)
    return members


def _children(task: Path) -> list[int]:
    try:
        return [int(child) for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _list(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def resident_bytes(pid: int) -> int:
    return sum(_status_bytes(member, "VmRSS") for member in family(pid))


def peak_bytes(pid: int) -> int:
    """Sum of the high-water marks since `reset_peak`."""
    return sum(_status_bytes(member, "VmHWM") for member in family(pid))


def reset_peak(pid: int) -> None:
    """Let the high-water mark begin at what is resident now (man 5 proc, clear_refs)."""
    for member in family(pid):
        Path(f"/proc/{member}/clear_refs").write_text("5")


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * KIB
    return 0


@dataclass(frozen=True, slots=True)
class MachineCpu:
    """Seconds since boot, of all cores together."""

    busy_s: float
    idle_s: float


def machine_cpu() -> MachineCpu:
    with Path("/proc/stat").open() as file:
        return parse_machine_cpu(file.readline())


def parse_machine_cpu(line: str) -> MachineCpu:
    """The first line of /proc/stat."""
    ticks = [int(field) for field in line.split()[1 : 1 + _COUNTED_FIELDS]]
    idle = sum(ticks[i] for i in _IDLE_FIELDS)
    return MachineCpu((sum(ticks) - idle) / TICKS_PER_SECOND, idle / TICKS_PER_SECOND)


def others_percent(before: MachineCpu, after: MachineCpu, ours_s: Sequence[float]) -> float:
    """The share of all cores that went to processes other than ours, the kernel's threads with those."""
    busy_s = after.busy_s - before.busy_s
    total_s = busy_s + after.idle_s - before.idle_s
    return 100 * max(busy_s - sum(ours_s), 0.0) / total_s if total_s else 0.0
