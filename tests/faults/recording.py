"""Runs a command under `shim/powercut.c` and keeps what it did to a directory."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.faults.powercut import Disk, Event, Tree, read_trace, read_tree, replayed

SOURCE = Path(__file__).parent / "shim" / "powercut.c"
CACHE = Path(__file__).parents[2] / ".cache"
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-U_FORTIFY_SOURCE"]
COMPILE_TIMEOUT_S = 60


class ShimUnavailable(Exception):
    """The recording library cannot be built here; the message is the reason to skip."""


def shim() -> Path:
    """The built library, compiled when it is missing. It is named by its source: several working trees may
    share a cache, and a trace is read by those who know what it says."""
    library = CACHE / f"powercut-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which("gcc")
    if compiler is None:
        raise ShimUnavailable("gcc is not installed: the power-cut recorder cannot be built")
    CACHE.mkdir(exist_ok=True)
    fresh = library.with_suffix(f".{os.getpid()}")
    built = subprocess.run(
        [compiler, *FLAGS, "-o", str(fresh), str(SOURCE), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    assert built.returncode == 0, built.stderr
    fresh.replace(library)
    return library


@dataclass(frozen=True, slots=True)
class Recording:
    """Where a recorded process works, and what it did there."""

    root: Path
    trace: Path

    def environment(self, ignore_sync: str = "", sync_delay_ms: int = 0) -> dict[str, str]:
        """For the process to record. `ignore_sync` is what the shim says, "" = none is ignored."""
        return {
            "LD_PRELOAD": str(shim()),
            "DRAGOMAN_TEST_POWERCUT_ROOT": str(self.root),
            "DRAGOMAN_TEST_POWERCUT_TRACE": str(self.trace),
            "DRAGOMAN_TEST_POWERCUT_IGNORE_SYNC": ignore_sync,
            "DRAGOMAN_TEST_POWERCUT_SYNC_DELAY_MS": str(sync_delay_ms),
        }

    def run(self, command: list[str], ignore_sync: str = "", timeout_s: float = 60) -> list[Event]:
        environment = os.environ | self.environment(ignore_sync)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)
        assert done.returncode == 0, done.stderr
        return self.events()

    def events(self) -> list[Event]:
        """The trace so far; fails if it does not account for every byte in the directory."""
        events = read_trace(self.trace)
        disk = replayed(events)
        assert without_mapped(disk, disk.whole_tree()) == without_mapped(disk, read_tree(self.root))
        return events


def without_mapped(disk: Disk, tree: Tree) -> Tree:
    """What is written through a mapping (SQLite's -shm) is not in the trace and never durable."""
    unsure = {Path(name).name for name in disk.mapped}
    return {name: content for name, content in tree.items() if Path(name).name not in unsure}


def new_recording(directory: Path) -> Recording:
    root = directory / "root"
    root.mkdir()
    return Recording(root, directory / "trace")
