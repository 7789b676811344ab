"""Files of a local log on the disk: the names in its directory, the one that is written, and those to be used
again. Plain blocking calls."""

import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from adapters.disk import (
    BLOCK_BYTES,
    FILE_MODE,
    Directories,
    allocate,
    check_writable,
    explain,
    read_at,
    sync_data,
    sync_directory,
    write_all,
    write_synced,
)
from adapters.local_log.direct import DirectWrites
from ledger.errors import StoreLocked
from ledger.formats.local_log import HEADER_BYTES, LogHeader, aligned, encode_header, read_header
from ledger.formats.local_log_pruned import Pruned, decode_pruned
from ledger.journal import MAX_ENTRY_BYTES
from ledger.keys import LOG_PREFIX, log_file_id, log_locator
from ledger.types import Buffer

ROLL_BYTES: Final = 64 * 1024 * 1024
MIN_ROLL_BYTES: Final = 4 * 1024 * 1024
"""An entry of full size fits, next to batches of a quarter of that."""
ROLL_SHARE: Final = 32
"""A file has this part of its file system at most (but for the two bounds above)."""
FULL_SHARE: Final = 16
"""A file with less than this part of it unused is full."""
FILL_BYTES: Final = 256 * 1024
"""What is filled with zeros at a time."""
FILL_AHEAD_BYTES: Final = 2 * 1024 * 1024
"""How far zeros reach ahead of the last frame."""
LARGE_FRAME_BYTES: Final = 64 * 1024
"""From that size on it costs more to write zeros first than to write into blocks that are only allocated."""
JOINED_BYTES: Final = 16 * 1024
"""A frame up to that size is written from one buffer."""
DIRECT_BYTES: Final = 256 * 1024
"""A frame of that size or more is written past the page cache."""
LARGE_STEP: Final = 8
"""So many of a large frame are allocated at a time."""
AHEAD_SHARE: Final = 4
"""At most this part of what is free is taken ahead, or kept to be used again: the snapshot and the image by
which a full disk is left are written elsewhere on it."""
MAX_SPARES: Final = 2
SPARE_ENDING: Final = ".spare"
PRUNED: Final = "pruned"
INCOMING: Final = ".pruned"


def roll_bytes_of(root: Path) -> int:
    """What suits the disk. OSError if that cannot be found out."""
    status = os.statvfs(root)
    share = status.f_blocks * status.f_frsize // ROLL_SHARE
    return min(ROLL_BYTES, max(MIN_ROLL_BYTES, share // HEADER_BYTES * HEADER_BYTES))


def space_ahead(fd: int) -> int:
    """How much of the disk of this file may be taken before it is needed. OSError."""
    status = os.fstatvfs(fd)
    return status.f_bavail * status.f_frsize // AHEAD_SHARE


def is_full(size: int, roll_bytes: int) -> bool:
    """Whether so little of a file is unused that it stays as it is: a new one is begun where an entry of any
    size might not fit."""
    return roll_bytes - size <= MAX_ENTRY_BYTES + roll_bytes // FULL_SHARE


class LogDirectory:
    """`log/{shard}` of a data directory."""

    def __init__(self, root: Path, shard: int) -> None:
        self.root = root
        self.shard = shard
        self.path = root / LOG_PREFIX.rstrip("/") / str(shard)
        self.spare_bytes = 0
        """Of the files to be used again."""
        self.direct = DirectWrites()
        self._lock_fd = -1

    def open(self) -> None:
        """Make it, durably, and lock it until `close`. StoreLocked if another process has."""
        directories = Directories(self.root)
        directories.open_root()
        try:
            directories.ensure(self.path)
            check_writable(self.path)
            self._lock_fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A process that died may have left names that are not durable.
            sync_directory(self.path)
            self.count_spares()
        except BlockingIOError:
            self.close()
            raise StoreLocked(f"the local log in {self.path} is open in another process; stop that") from None
        except OSError as error:
            self.close()
            raise explain(error, "write to the directory", self.path) from error

    def close(self) -> None:
        self.direct.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def locator(self, file_id: bytes) -> str:
        return log_locator(self.shard, file_id)

    def path_of(self, file_id: bytes) -> Path:
        return self.root / self.locator(file_id)

    def file_ids(self) -> list[bytes]:
        """Of all files of the log, those included that were never begun. OSError."""
        names = (f"{LOG_PREFIX}{self.shard}/{name}" for name in os.listdir(self.path))
        return sorted(found for name in names if (found := log_file_id(name)) is not None)

    def spares(self) -> list[Path]:
        """Files to be used again. OSError."""
        return sorted(self.path / name for name in os.listdir(self.path) if name.endswith(SPARE_ENDING))

    def count_spares(self) -> None:
        """Bring `spare_bytes` up to date. OSError."""
        self.spare_bytes = sum(path.stat().st_size for path in self.spares())

    def put_aside(self, file_ids: Sequence[bytes], roll_bytes: int) -> None:
        """The files have these names no longer, durably. One that was left when full is kept to be used
        again, if there are few of those and the disk has space; else it is removed. OSError."""
        wanted, space = MAX_SPARES - len(self.spares()), space_ahead(self._lock_fd)
        for file_id in file_ids:
            path = self.path_of(file_id)
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                if wanted > 0 and size <= space and is_full(size, roll_bytes):
                    path.rename(path.with_suffix(SPARE_ENDING))
                    wanted -= 1
                    space -= size
                else:
                    path.unlink()
        sync_directory(self.path)
        self.count_spares()

    def replace(self, name: str, data: Buffer) -> None:
        """Put a small file in the place of the one before, atomically. OSError before that has an effect;
        then `sync` has to follow."""
        incoming = self.path / INCOMING
        fd = os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            write_all(fd, [data])
            sync_data(fd)
        finally:
            os.close(fd)
        incoming.rename(self.path / name)

    def sync(self) -> None:
        sync_directory(self.path)


def header_of(path: Path) -> LogHeader | None:
    """The header of the file, whatever its name; None if it has none. OSError."""
    with path.open("rb", buffering=0) as file:
        return read_header(read_at(file.fileno(), 0, HEADER_BYTES), str(path))


def read_pruned(path: Path) -> Pruned:
    """OSError, StoreDamaged, StoreTooNew."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Pruned()
    return decode_pruned(data, str(path))


class ActiveFile:
    """The file that this process writes. Frames are written by one thread; another one writes zeros ahead."""

    def __init__(self, path: Path, fd: int, header: LogHeader, size: int, direct: DirectWrites) -> None:
        """`size` bytes of it are allocated."""
        self.path = path
        self.header = header
        self.position = HEADER_BYTES
        """Where the next frame begins."""
        self._is_open = True
        self._fd = fd
        self._zeros_fd = -1
        """Opened apart: the kernel reports a write that failed to each open file once, so on the same one the
        thread that writes zeros would take the error of a frame, and the frame would count as durable."""
        self._direct = direct
        self._direct_fd = -1
        self._begun_block: bytes | None = None
        """What the block of `position` has before it, if that is known: a direct write begins with it."""
        self._ready = size
        """Up to here frames can be written without allocating."""
        self._lock = threading.Lock()
        """Zeros are written above `_ready`, frames below. Held during a direct write too: the pages of the
        cache that it makes invalid must not be among those that are being written."""

    @property
    def ahead_bytes(self) -> int:
        return max(self._ready - self.position, 0)

    @property
    def wants_zeros(self) -> bool:
        return self._ready - self.position < FILL_AHEAD_BYTES // 2

    def reserve(self, size: int, roll_bytes: int) -> None:
        """The next `size` bytes can be written. OSError, and nothing has changed, if the disk is full."""
        end = self.position + size
        if size >= DIRECT_BYTES:
            end = aligned(end, BLOCK_BYTES)
        if end <= self._ready:
            return
        with self._lock:
            if end <= self._ready:
                return
            step = LARGE_STEP * size if size >= LARGE_FRAME_BYTES else FILL_BYTES
            try:
                ahead = max(end, min(end + min(step, space_ahead(self._fd)), roll_bytes))
                allocate(self._fd, self._ready, ahead)
                self._ready = ahead
            except OSError:
                allocate(self._fd, self._ready, end)
                self._ready = end

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        """Write a frame for which there is space. After an OSError nothing more is written here."""
        if size < DIRECT_BYTES or not self._write_direct(buffers):
            # To hand the kernel many small buffers costs more than to join them.
            parts = [b"".join(buffers)] if size <= JOINED_BYTES else buffers
            self._begun_block = None
            write_synced(self._fd, parts, self.position)
        self.position += size

    def _write_direct(self, buffers: Sequence[Buffer]) -> bool:
        """False if such writes cannot be made, here or now: then nothing of it counts."""
        inside = self.position % BLOCK_BYTES
        at = self.position - inside
        with self._lock:
            if self._direct_fd < 0 and self._direct.is_possible:
                self._direct_fd = self._direct.open(self.path)
            if self._direct_fd < 0 or not self._direct.is_possible:
                return False
            begun = self._begun_block
            if begun is None:
                begun = read_at(self._fd, at, inside)
            if len(begun) < inside:
                raise OSError(errno.EIO, "the file is shorter than what was written", str(self.path))
            # The same bytes again: what of them is on the disk stays as it is, whatever becomes of the write.
            self._begun_block = self._direct.write(self._direct_fd, [begun, *buffers], at)
        return self._begun_block is not None

    def fill(self, limit: int) -> bool:
        """Write zeros ahead, but not above `limit`. False if nothing more is to be filled."""
        with self._lock:
            end = min(limit, self._ready + FILL_BYTES)
            if not self._is_open or end <= self._ready or self._ready - self.position >= FILL_AHEAD_BYTES:
                return False
            if end - self.position > space_ahead(self._fd):
                return False
            if self._zeros_fd < 0:
                self._zeros_fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            write_synced(self._zeros_fd, [bytes(end - self._ready)], self._ready)
            self._ready = end
            return True

    def leave(self) -> None:
        """Write no more."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                if self._direct_fd >= 0:
                    os.close(self._direct_fd)
                if self._zeros_fd >= 0:
                    os.close(self._zeros_fd)
                os.close(self._fd)


def begin_file(directory: LogDirectory, header: LogHeader, first_bytes: int) -> "Begun":
    """A file of the header's name, with space for a frame of `first_bytes`. OSError, and nothing has changed,
    if there cannot be one. It is none of the log before `Begun.write_header`."""
    path = directory.path_of(header.file_id)
    size = 0
    for spare in directory.spares():
        spare.rename(path)
        size = path.stat().st_size
        break
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(path, flags, FILE_MODE)
    try:
        if size < HEADER_BYTES + first_bytes:
            allocate(fd, size, HEADER_BYTES + first_bytes)
            size = HEADER_BYTES + first_bytes
        directory.sync()
        directory.count_spares()
    except BaseException:
        os.close(fd)
        with suppress(OSError):
            path.unlink()
        raise
    return Begun(path, fd, header, size, directory.direct)


class Begun:
    """A file with a name and space, whose header is not yet written."""

    def __init__(self, path: Path, fd: int, header: LogHeader, size: int, direct: DirectWrites) -> None:
        self._direct = direct
        self._path = path
        self._fd = fd
        self._header = header
        self._size = size

    def write_header(self) -> ActiveFile:
        """From now on the log goes on here. After an OSError it may, until a later file does."""
        try:
            write_synced(self._fd, [encode_header(self._header)], 0)
        except BaseException:
            os.close(self._fd)
            with suppress(OSError):
                self._path.unlink()
            raise
        return ActiveFile(self._path, self._fd, self._header, self._size, self._direct)
