"""Which files this process has open."""

import os
from contextlib import suppress
from pathlib import Path


def open_below(directory: Path) -> list[str]:
    """The files of this directory that this process has open. What else the tests of this process have open
    comes and goes meanwhile."""
    paths = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in paths if path.startswith(f"{directory}/")]
