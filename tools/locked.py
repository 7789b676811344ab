"""Runs a command while no other one runs that was started like this in the same tree: two `make`s at once
must not set up one environment. `python tools/locked.py COMMAND [ARGUMENT...]`; ends with its exit code."""

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Final

PLACE: Final = Path(__file__)
"""Of the lock, which ends with the process."""


def main(command: list[str], place: Path = PLACE) -> int:
    with place.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another make that sets up the same environment", file=sys.stderr)
            fcntl.flock(held, fcntl.LOCK_EX)
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
