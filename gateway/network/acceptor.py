"""Listening sockets: opening them, and accepting connections no faster than the limiter allows."""

import asyncio
import errno
import resource
import socket
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gateway.addresses import Address, is_loopback
from gateway.network.connection_limits import ConnectionLimiter
from gateway.network.links import Accepted, Listening
from gateway.telemetry.logs import QuietLog

log = structlog.get_logger()

BACKLOG: Final = 1024
ACCEPTS_AT_ONCE: Final = 64
"""In one iteration of the event loop: then other work goes on."""
EXHAUSTED_WAIT_S: Final = 1.0
"""Without file descriptors or memory for another connection, try again after this."""
OTHER_FILES: Final = 1024
"""File descriptors for all but client connections."""
MACOS_OPEN_MAX: Final = 10_240
"""OPEN_MAX of <sys/syslimits.h>: the most files that a process may open there."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListenFailed(Exception):
    """An address cannot be listened on; `in_use` if another process has it."""

    def __init__(self, address: Address, flag: str, error: OSError) -> None:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        super().__init__(f"cannot listen on {address}: {reason}; choose another address with {flag}")
        self.address = address
        self.in_use = error.errno == errno.EADDRINUSE


class Acceptor:
    """Accepts connections of one listening address and passes them to `admit`, with the peer's IP address.

    Paused, it leaves them in the kernel's queue.
    """

    def __init__(
        self,
        listening: Listening,
        limiter: ConnectionLimiter,
        quiet: QuietLog,
        admit: Callable[[Accepted, str], None],
    ) -> None:
        self._listening = listening
        self._limiter = limiter
        self._quiet = quiet
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        listening.watch(self._accept)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
        self._listening.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            wait_s = self._limiter.wait_s(self._loop.time())
            if wait_s > 0:
                self._pause(wait_s)
                return
            try:
                accepted, host = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._quiet.warning("listener.accept_failed", reason=error.strerror)
                if error.errno in _EXHAUSTED:
                    self._pause(EXHAUSTED_WAIT_S)
                return
            self._admit(accepted, host)

    def _pause(self, wait_s: float) -> None:
        self._listening.unwatch()
        self._later = self._loop.call_later(wait_s, self._resume)

    def _resume(self) -> None:
        self._later = None
        self._listening.watch(self._accept)


async def open_sockets(address: Address, flag: str) -> list[socket.socket]:
    """Listen on every address that the host name resolves to. Raises ListenFailed, which names the flag."""
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ListenFailed(address, flag, error) from error
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    for family, target in dict.fromkeys((info[0], info[4]) for info in infos):
        port = int(sockets[0].getsockname()[1]) if sockets else address.port
        try:
            sockets.append(_bound(family, (target[0], port)))
        except OSError as error:
            # A machine without IPv6 still resolves localhost to ::1.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                _close_all(sockets)
                raise ListenFailed(address, flag, error) from error
            absent = error
    if not sockets:
        raise ListenFailed(address, flag, absent or OSError(errno.EADDRNOTAVAIL, "no such address"))
    return sockets


def _bound(family: int, target: tuple[object, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(target)
        # A port that is in use shows at bind only when a process listens there: two binds would both succeed.
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _close_all(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def warn_of_plaintext(url: str, hosts: Sequence[str], remedy: str) -> None:
    """Log a warning when other machines can reach a listener without encryption."""
    if not all(map(is_loopback, hosts)):
        log.warning(
            "listener.plaintext",
            listener=url,
            advice=f"anyone on the network path can read and change what passes here; {remedy}",
        )


def raise_file_limit(connections: int) -> None:
    """Let this process open as many files as its connections need, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    except ValueError:
        # macOS says that there is no limit, and takes none above this one.
        allowed = min(wanted, MACOS_OPEN_MAX)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    if allowed < wanted:
        log.warning(
            "listener.few_files",
            files=allowed,
            connections=connections,
            advice="raise ulimit -Hn",
        )
