"""Local files: what makes them durable, and what to tell the operator when they fail."""

import ctypes
import errno
import fcntl
import mmap
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.types import Buffer

IOV_MAX = 1024
NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""Linux: read what is in memory, or fail."""
_CACHESTAT: Final = ctypes.c_long(451)
"""The number of that call of Linux, on all processors."""
BLOCK_BYTES: Final = 4096
"""Where direct I/O begins and ends, in the file and in memory: enough for every disk that is in use."""
NO_DIRECT_IO: Final = (errno.EINVAL, errno.EOPNOTSUPP)
"""Errors of a file system that has none, or that wants larger blocks."""
ZEROS_BYTES = 256 * 1024
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
"""Stored files are for the gateway's user alone."""

OTHER_PLACE: Final = "another place with --data-dir"
_REASONS = {
    errno.ENOSPC: "no space is left on the device; free some or choose {other}",
    errno.EDQUOT: "the disk quota is used up; raise it or choose {other}",
    errno.EROFS: "the file system is read-only; mount it writable or choose {other}",
    errno.EACCES: "permission is denied; make it writable for this user or choose {other}",
    errno.EPERM: "permission is denied; make it writable for this user or choose {other}",
    errno.ENOENT: "its parent directory does not exist; create it or choose {other}",
    errno.ENOTDIR: "a part of the path is a file, not a directory; choose {other}",
    errno.EISDIR: "it is a directory, not a file; choose {other}",
    errno.EMFILE: "too many files are open; raise the limit of this process (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine; raise the limit (fs.file-max)",
    errno.EIO: "the disk reports an I/O error; check it (dmesg) and choose {other}",
    errno.EFBIG: "the file would become too large; raise the limit of this process (ulimit -f)",
}


def explain(
    error: OSError, what: str, path: str | os.PathLike[str], other: str = OTHER_PLACE
) -> StoreUnavailable:
    """One sentence: what was tried on which path, why it failed, and the remedy. `other`: what may be chosen
    in its place, with the name of the flag or argument that does."""
    known = _REASONS.get(error.errno or 0)
    reason = known.format(other=other) if known else f"{os.strerror(error.errno or 0)}; check this path"
    return StoreUnavailable(f"cannot {what} {os.fspath(path)}: {reason}")


def verify_readable(directory: Path) -> None:
    """StoreUnavailable if there is no such directory, or it cannot be read."""
    try:
        os.scandir(directory).close()
    except OSError as error:
        raise explain(error, "read the data directory", directory) from error


def sync_data(fd: int) -> None:
    """Make a file's bytes survive loss of power. OSError if that fails."""
    if sys.platform == "darwin":
        _sync_on_macos(fd)
    else:
        os.fdatasync(fd)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable: created, renamed and removed ones."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if sys.platform == "darwin":
            _sync_on_macos(fd)
        else:
            os.fsync(fd)
    finally:
        os.close(fd)


def _sync_on_macos(fd: int) -> None:
    """Its fsync leaves bytes in the cache of the drive, and it has no fdatasync. A file system that lacks
    this call fails with ENOTSUP: what it stores could be lost after it was acknowledged."""
    fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC", 51))


def delete_files(paths: Sequence[Path], kind: str, other: str = OTHER_PLACE) -> None:
    """Delete these files of a `kind`, durably; those that are not there are passed by. StoreUnavailable if
    that fails before any was deleted, else OutcomeUnknown: what was deleted is durable then, if it can be."""
    changed: dict[Path, None] = {}
    deleted = 0
    for path in paths:
        try:
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                path.unlink()
                deleted += 1
        except OSError as error:
            failed = explain(error, f"delete the {kind}", path, other)
            if not deleted:
                raise failed from error
            _sync_directories(changed, other)
            raise OutcomeUnknown(f"{failed}; {deleted} of {len(paths)} were deleted before") from error
        # Also of one that is not there: its deletion may not be durable yet.
        changed[path.parent] = None
    _sync_directories(changed, other)


def _sync_directories(changed: Iterable[Path], other: str) -> None:
    for directory in changed:
        try:
            sync_directory(directory)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise OutcomeUnknown(str(explain(error, "sync the directory", directory, other))) from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """OSError with the reason unless this user may write to the file, or create files in the directory."""
    wanted = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(path) else 0)
    effective = os.access in os.supports_effective_ids
    if not os.access(path, wanted, effective_ids=effective):
        is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        raise OSError(errno.EROFS if is_read_only else errno.EACCES, "not writable", os.fspath(path))


def write_all(fd: int, parts: Sequence[Buffer]) -> int:
    """Write buffers back to back at the file's end, however short the system's writes; bytes written."""
    left = [memoryview(part).cast("B") for part in parts if len(part)]
    total = 0
    first = 0
    while first < len(left):
        written = os.writev(fd, left[first : first + IOV_MAX])
        total += written
        while first < len(left) and written >= len(left[first]):
            written -= len(left[first])
            first += 1
        if written:
            left[first] = left[first][written:]
    return total


def write_synced(fd: int, parts: Sequence[Buffer], position: int) -> None:
    """Write buffers back to back at `position`, and make them durable in the same step where the system can.
    After an OSError it is unknown which of their bytes are there."""
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    if len(views) > IOV_MAX:
        # More than one call would sync more than once.
        views = [memoryview(b"".join(views))]
    while views:
        written = _write_synced_once(fd, views, position)
        position += written
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _write_synced_once(fd: int, views: Sequence[memoryview], position: int) -> int:
    if hasattr(os, "RWF_DSYNC"):
        return os.pwritev(fd, views, position, os.RWF_DSYNC)
    written = os.pwritev(fd, views, position)
    sync_data(fd)
    return written


def allocate(fd: int, start: int, end: int) -> None:
    """Make sure that bytes from `start` to `end` of a file can be written, and that it is that long: where it
    is new they are zeros. OSError if the disk is too full; nothing that was there is changed."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, end - start)
        return
    size = os.fstat(fd).st_size
    while size < end:
        size += os.pwrite(fd, bytes(min(end - size, ZEROS_BYTES)), size)


def read_at(fd: int, start: int, size: int) -> bytes:
    """The bytes [start, start + size), fewer only where the file ends."""
    chunk = os.pread(fd, size, start)
    if len(chunk) == size or not chunk:
        return chunk
    chunks = [chunk]
    have = len(chunk)
    while have < size and (chunk := os.pread(fd, size - have, start + have)):
        chunks.append(chunk)
        have += len(chunk)
    return b"".join(chunks)


def read_resident(fd: int, start: int, size: int) -> memoryview | None:
    """The bytes [start, start + size) if the page cache has all of them: read without waiting for the disk.
    Otherwise, and where the system has no such reads, None."""
    if NO_WAIT is None:
        return None
    buffer = bytearray(size)
    try:
        have = os.preadv(fd, [buffer], start, NO_WAIT)
    except OSError:
        # Not in memory, or a file system without such reads. A failing disk fails the read that follows.
        return None
    return memoryview(buffer).toreadonly() if have == size else None


class _PageCacheRange(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _PageCacheCounts(ctypes.Structure):
    """Pages, as <linux/mman.h> has them."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writing", "evicted", "lately"))


# Without letting another thread have the interpreter: the call itself waits for nothing.
_libc = ctypes.PyDLL(None) if sys.platform == "linux" else None


def is_resident(fd: int, start: int, size: int) -> bool | None:
    """Whether the page cache has all of [start, start + size). To ask has no effect: even a read that
    must not wait makes the system read ahead. None where it does not say (before Linux 6.5)."""
    if _libc is None:
        return None
    of, counts = _PageCacheRange(start, size), _PageCacheCounts()
    if _libc.syscall(_CACHESTAT, fd, ctypes.byref(of), ctypes.byref(counts), 0):
        return None
    pages = (start + size - 1) // mmap.PAGESIZE - start // mmap.PAGESIZE + 1
    return bool(counts.cached >= pages)


def give_to_owner(made: int, directory: Path) -> None:
    """What root makes in a directory of another user (an open file or directory `made`) belongs to that user:
    a gateway that runs as such a user could not read what a command or a job of root leaves there. Where root
    may not give files away, as in some containers, it stays root's."""
    if os.geteuid():
        return
    with suppress(OSError):
        owner = directory.stat()
        if owner.st_uid and not os.fstat(made).st_uid:
            os.fchown(made, owner.st_uid, owner.st_gid)


def _give_directory(path: Path) -> None:
    if os.geteuid():
        return
    # The other user might have put a link to something of root's in its place.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        give_to_owner(fd, path.parent)
    finally:
        os.close(fd)


class Directories:
    """The directories under a root, each made durable once before anything in it is called durable."""

    def __init__(self, root: Path, other: str = OTHER_PLACE) -> None:
        """`other`: as for `explain`."""
        self.root = root
        self._other = other
        self._durable: set[Path] = set()
        self._lock = threading.Lock()

    def open_root(self) -> None:
        """Create the root if its parent exists. StoreUnavailable with the reason if that fails."""
        try:
            self._make(self.root)
        except OSError as error:
            raise explain(error, "open the directory", self.root, self._other) from error

    def ensure(self, directory: Path) -> None:
        """Create `directory` (the root or below it) with all its parents, durably. OSError if it fails."""
        if directory in self._durable:
            return
        with self._lock:
            missing = [directory, *directory.parents]
            for path in reversed(missing[: missing.index(self.root)]):
                if path not in self._durable:
                    self._make(path)

    def forget(self, directory: Path) -> None:
        """The directory, or one of its parents, was removed: `ensure` makes them again."""
        with self._lock:
            for path in [directory, *directory.parents]:
                if path == self.root:
                    return
                self._durable.discard(path)

    def _make(self, path: Path) -> None:
        try:
            path.mkdir(DIRECTORY_MODE)
            _give_directory(path)
            made = True
        except FileExistsError:
            made = False
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path)) from None
        # Also if it existed before: the process that made it may have died before its name was durable.
        try:
            sync_directory(path.parent)
        except PermissionError:
            if made:
                raise
        self._durable.add(path)
