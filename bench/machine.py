"""What was measured on: enough to compare by, nothing that names the machine."""

import os
import platform
import resource
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path

from tests.support.versions import ROOT, tool_version


def describe_machine(data: Path) -> dict[str, str]:
    """Processor, memory, kernel, file system under `data`, and the versions that took part."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{os.cpu_count()} x {_cpu_model()}",
        "memory": f"{_memory_gib():.0f} GiB",
        "kernel": platform.release().split("-")[0],
        "file system": _file_system(data),
        "python": f"{platform.python_version()}, {_python_build()}",
        "java": _java_version(),
        "kafka": tool_version("kafka"),
        "dragoman": _revision(),
    }


def allow_open_files(wanted: int) -> str | None:
    """Let this process and its children open `wanted` files. Returns the reason if that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return f"a process may open {hard} files (ulimit -Hn), and {wanted} are needed"
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else hard, hard))
    return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _file_system(path: Path) -> str:
    """The type of the mount with the longest path that holds `path`."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind = line.split()[:3]
        inside = path.is_relative_to(mount)
        if inside and len(mount) > len(best[0]):
            best = (mount, kind)
    return best[1]


def _python_build() -> str:
    """How the interpreter was built, which is worth a tenth of the CPU of a gateway."""
    if "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS")):
        return "built with profile-guided optimization"
    if sys.base_prefix == "/usr":
        return "as the distribution builds it"
    return "built without profile-guided optimization"


def _java_version() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return "none"
    words = done.stderr.split('"')
    return words[1] if len(words) > 1 else "unknown"


def _revision() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
