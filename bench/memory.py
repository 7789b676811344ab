"""Touches the machine's free memory before anything is measured.

A virtual machine gets a page of its host's memory when it first writes to it, which costs more than what is
written. Without this the server that happens to use a page first pays for it. `python -m bench.memory BYTES`
touches that much, and gives it back by ending.
"""

import mmap
import subprocess
import sys
from pathlib import Path

from tests.support.versions import ROOT

MAX_BYTES = 12 << 30
"""More than the servers hold and the page cache takes in a round."""
SHARE = 2
"""Of what is available a half: others on the machine need theirs."""
KIB = 1024
TIMEOUT_S = 120.0


def touch_free_memory() -> int:
    """Returns the bytes touched: none on a system that does not say how much is available."""
    size = bytes_to_touch(_available_bytes())
    if size:
        subprocess.run(
            [sys.executable, "-m", "bench.memory", str(size)], cwd=ROOT, check=True, timeout=TIMEOUT_S
        )
    return size


def bytes_to_touch(available: int) -> int:
    return min(available // SHARE, MAX_BYTES)


def _available_bytes() -> int:
    path = Path("/proc/meminfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    return 0


def main(size: int) -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, size, flags=flags).close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
