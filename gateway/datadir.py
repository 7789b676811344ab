"""The data directory of the embedded stores, and the lock that lets one gateway use it."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Final

from ledger.errors import StoreLocked, StoreUnavailable

LOCK_FILE: Final = "lock"
SETTING: Final = "--data-dir (storage.data_dir)"


class DataDirectory:
    """An open, locked directory. The kernel frees the lock when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        """Create the directory if need be and take its lock. StoreLocked says who has it;
        StoreUnavailable why the directory cannot be used."""
        self.path = path
        try:
            _create(path)
            self._descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnavailable(
                f"the data directory {path} cannot be used: {error.strerror}; choose another with {SETTING}"
            ) from error
        try:
            self._lock()
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        os.close(self._descriptor)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked(
                f"the data directory {self.path} is in use by {_holder(self._descriptor)}; "
                f"stop it, or choose another with {SETTING}"
            ) from None
        except OSError as error:
            raise StoreUnavailable(
                f"the data directory {self.path} cannot be locked: {error.strerror}; "
                f"choose another with {SETTING}"
            ) from error
        self._sign()

    def _sign(self) -> None:
        """Leave word of who holds the lock. Only for people: the lock itself is the kernel's."""
        word = json.dumps({"pid": os.getpid(), "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, word.encode(), 0)
        except OSError as error:
            raise StoreUnavailable(
                f"the data directory {self.path} cannot be written: {error.strerror}; free some space, "
                f"or choose another with {SETTING}"
            ) from error


def _holder(descriptor: int) -> str:
    try:
        word = json.loads(os.pread(descriptor, 200, 0))
        return f"the gateway with process id {word['pid']}, started {word['started']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another gateway"


def _create(path: Path) -> None:
    """Make the directory and what is missing above it, each durably known to its parent."""
    missing = []
    above = path.absolute()
    while not above.exists():
        missing.append(above)
        above = above.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        _sync(directory.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
