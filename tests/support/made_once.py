"""Files and directories below `.cache` that are downloaded or built once, by one process at a time."""

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.versions import CACHE


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """`.cache/<name>`. When it is not there, `make` makes it at the path that it is given; then it is whole.

    Safe to call from several processes. Errors: those of `make`; then the next call tries again.
    """
    target = CACHE / name
    if target.exists():
        return target
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f".lock-{name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
                make(Path(fresh, "made"))
                os.rename(Path(fresh, "made"), target)
    return target
