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
FIRST_VERSION: Final = 1
VERSION_WITH_LOG: Final = 2
"""Of a directory whose journal is in a local log, or goes on there: `metadata.db` is the part before it."""
FORMAT_VERSION: Final = VERSION_WITH_LOG
"""The newest of a directory: its stores and their names. Each store has a version of its own."""
SETTING: Final = "--data-dir (storage.data_dir)"
DATA_SETTING: Final = "--data (storage.data)"
LOG_SETTING: Final = "--metadata (storage.metadata)"
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

    def __init__(self, path: Path, *, has_log: bool = False, setting: str = SETTING) -> None:
        """`has_log`: a journal is in a local log here, or will be. From then on builds that know none refuse
        the directory, before anything is in the log."""
        super().__init__(path, setting)
        try:
            check_format(path, VERSION_WITH_LOG if has_log else FIRST_VERSION)
        except BaseException:
            self.close()
            raise


def check_format(path: Path, least: int = FIRST_VERSION) -> None:
    """Write the format version `least` into a directory that has none yet, or an older one; it is durable
    when this returns. StoreTooNew if this build does not know the version."""
    version = format_of(path)
    if version is not None and version > FORMAT_VERSION:
        raise StoreTooNew(
            f"the data directory {path} has format version {version}, this build knows up to "
            f"{FORMAT_VERSION}; start it with the version of Dragoman that wrote it"
        )
    if version is None or version < least:
        _write_format(path / FORMAT_FILE, least)
    elif least > FIRST_VERSION:
        _make_durable(path)


def format_of(path: Path) -> int | None:
    """The format version of a directory; None if it has none. StoreDamaged, StoreUnavailable if it cannot be
    read."""
    file = path / FORMAT_FILE
    try:
        text = file.read_text()[:20]
        # An empty file: its writer died before the bytes were durable.
        return int(text) if text else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"{file} cannot be read: {error.strerror}; make it readable") from error
    except ValueError:
        raise StoreDamaged(
            f"{file} does not hold a format version; write {FORMAT_VERSION} into it if this version of "
            "Dragoman wrote the directory"
        ) from None


def _write_format(file: Path, version: int) -> None:
    draft = file.with_name(f".{file.name}")
    try:
        with open(draft, "w", opener=_private) as written:
            written.write(f"{version}\n")
            written.flush()
            # Before the rename: a name that is durable must not lead to bytes that are not.
            os.fsync(written.fileno())
        draft.replace(file)
        _sync(file.parent)
    except OSError as error:
        raise _not_written(file, error) from error


def _make_durable(path: Path) -> None:
    """A process that was killed may have left a name that can be read and is not durable."""
    try:
        _sync(path)
    except OSError as error:
        raise _not_written(path / FORMAT_FILE, error) from error


def _not_written(file: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"{file} cannot be written: {error.strerror}; choose another data directory with {SETTING}"
    )


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
