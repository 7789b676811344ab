"""The data directory of the embedded stores, and the lock that lets one gateway use it."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Final

from ledger.errors import StoreDamaged, StoreLocked, StoreTooNew, StoreUnavailable

LOCK_FILE: Final = "lock"
FORMAT_FILE: Final = "format"
FORMAT_VERSION: Final = 1
"""Of the directory: its stores and their names. Each store has a version of its own."""
SETTING: Final = "--data-dir (storage.data_dir)"
DATA_SETTING: Final = "--data (storage.data)"
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Only this user may read records."""


class DirectoryLock:
    """An open, locked directory. The kernel frees the lock when the process dies, however it dies."""

    def __init__(self, path: Path, setting: str = SETTING) -> None:
        """Create the directory if it is missing and take its lock. StoreLocked names the process that has it,
        StoreUnavailable the reason why the directory cannot be used; both name the setting that chose it."""
        self.path = path
        self._setting = setting
        try:
            _create(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(path / LOCK_FILE, flags, FILE_MODE)
        except OSError as error:
            raise StoreUnavailable(
                f"the data directory {path} cannot be used: {error.strerror}; choose another with {setting}"
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
                f"stop it, or choose another with {self._setting}"
            ) from None
        except OSError as error:
            raise StoreUnavailable(
                f"the data directory {self.path} cannot be locked: {error.strerror}; "
                f"choose another with {self._setting}"
            ) from error
        self._sign()

    def _sign(self) -> None:
        """Write the process id into the lock file, for people: the lock itself is the kernel's."""
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        holder = json.dumps({"pid": os.getpid(), "started": started})
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, holder.encode(), 0)
        except OSError as error:
            raise StoreUnavailable(
                f"the data directory {self.path} cannot be written: {error.strerror}; free some space, "
                f"or choose another with {self._setting}"
            ) from error


class DataDirectory(DirectoryLock):
    """The directory of the embedded stores: locked, and of a format that this build knows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            check_format(path)
        except BaseException:
            self.close()
            raise


def check_format(path: Path) -> None:
    """Write the format version of a directory that has none yet. StoreTooNew if this build does not know
    it."""
    file = path / FORMAT_FILE
    try:
        text = file.read_text()[:20]
        # An empty file: its writer died before the bytes were durable.
        version = int(text) if text else _write_format(file)
    except FileNotFoundError:
        version = _write_format(file)
    except OSError as error:
        raise StoreUnavailable(f"{file} cannot be read: {error.strerror}; make it readable") from error
    except ValueError:
        raise StoreDamaged(
            f"{file} does not hold a format version; write {FORMAT_VERSION} into it if this version of "
            "Dragoman wrote the directory"
        ) from None
    if version > FORMAT_VERSION:
        raise StoreTooNew(
            f"the data directory {path} has format version {version}, this build knows up to "
            f"{FORMAT_VERSION}; start it with the version of Dragoman that wrote it"
        )


def _write_format(file: Path) -> int:
    draft = file.with_name(f".{file.name}")
    try:
        with open(draft, "w", opener=_private) as written:
            written.write(f"{FORMAT_VERSION}\n")
            written.flush()
            # Before the rename: a name that is durable must not lead to bytes that are not.
            os.fsync(written.fileno())
        draft.replace(file)
        _sync(file.parent)
    except OSError as error:
        raise StoreUnavailable(
            f"{file} cannot be written: {error.strerror}; choose another data directory with {SETTING}"
        ) from error
    return FORMAT_VERSION


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 200, 0))
        return f"the gateway with process id {holder['pid']}, started {holder['started']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another gateway"


def _create(path: Path) -> None:
    """Make the directory and its missing parents, each of them durable."""
    missing = []
    above = path.absolute()
    while not above.exists():
        missing.append(above)
        above = above.parent
    for directory in reversed(missing):
        directory.mkdir(DIRECTORY_MODE if directory == path.absolute() else 0o777, exist_ok=True)
        _sync(directory.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
