"""Unix sockets: listening on a path that only this user, and root, may connect to."""

import asyncio
import errno
import fcntl
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gateway.addresses import Address
from gateway.network.acceptor import BACKLOG
from gateway.network.links import Accepted
from gateway.network.sockets import AcceptedSocket

UNIX_PATH_BYTES: Final = 103 if sys.platform == "darwin" else 107
"""What the path of a Unix socket may have: sun_path without its last zero."""
SOCKET_MODE: Final = 0o600
LOCK_ENDING: Final = ".lock"
_DESCRIPTORS: Final = Path("/proc/self/fd")
_CREDENTIALS: Final = struct.Struct("iII")


class SocketFailed(Exception):
    """A path cannot be listened on, in one sentence; `in_use` if another process listens there."""

    def __init__(self, path: Path, reason: str, *, in_use: bool = False) -> None:
        super().__init__(f"cannot listen on the Unix socket {path}: {reason}")
        self.in_use = in_use


class UnixListening:
    """A `Listening` on a path. A file beside it is locked for as long as it is open, so that two processes
    never share a path, and what one that was killed has left is replaced."""

    def __init__(self, path: Path) -> None:
        """Raises SocketFailed."""
        self.path = path.absolute()
        self._loop = asyncio.get_running_loop()
        try:
            self._lock = _locked(self.path)
        except OSError as error:
            raise SocketFailed(path, error.strerror or str(error)) from error
        try:
            _remove_stale(self.path)
            self._sock = _bound(self.path)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise SocketFailed(path, error.strerror or str(error)) from error
            raise

    @property
    def bound(self) -> Address:
        return Address(str(self.path), 0)

    def watch(self, on_waiting: Callable[[], None]) -> None:
        self._loop.add_reader(self._sock, on_waiting)

    def unwatch(self) -> None:
        self._loop.remove_reader(self._sock)

    def accept(self) -> tuple[Accepted, str]:
        """A connection of this user or of root; its address is empty. Others, on a system that lets them
        connect whatever the mode of the file, are closed: ConnectionAbortedError."""
        sock, _ = self._sock.accept()
        sock.setblocking(False)
        if user_of(sock) not in (None, 0, os.geteuid()):
            sock.close()
            raise ConnectionAbortedError(errno.ECONNABORTED, "another user")
        return AcceptedSocket(sock), ""

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        # Before the lock is free: another process may put its own there then.
        with suppress(OSError):
            self.path.unlink()
        self._sock.close()
        os.close(self._lock)


def _locked(path: Path) -> int:
    """The descriptor that holds the lock, which the kernel frees when the process dies."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path.with_name(path.name + LOCK_ENDING), flags, SOCKET_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SocketFailed(
            path, "another gateway listens there; choose another with internal.socket", in_use=True
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that was killed. Nothing else, and nobody else's."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketFailed(path, "there is a file that is no socket; remove it, or set internal.socket")
    if found.st_uid != os.geteuid():
        raise SocketFailed(
            path, f"the socket there belongs to user {found.st_uid}; remove it, or set internal.socket"
        )
    path.unlink()


def _bound(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        with _short(path) as name:
            sock.bind(name)
        # Nobody can connect before `listen`.
        path.chmod(SOCKET_MODE)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """The path as the kernel takes it. One that is too long goes by an open directory, where the system has
    names for those."""
    size = len(os.fsencode(path))
    if size <= UNIX_PATH_BYTES:
        yield str(path)
        return
    if not _DESCRIPTORS.is_dir() or len(os.fsencode(path.name)) > UNIX_PATH_BYTES // 2:
        raise SocketFailed(
            path,
            f"its path has {size} bytes, and that of a Unix socket may have {UNIX_PATH_BYTES}; choose a "
            "shorter one with internal.socket",
        )
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(_DESCRIPTORS / str(directory) / path.name)
    finally:
        os.close(directory)


def user_of(sock: socket.socket) -> int | None:
    """The number of the user at the other end, where the system says whose it is."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(user)
