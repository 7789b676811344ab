"""Listens, keeps watch over connections, and drains them at the end."""

import asyncio
import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from gateway.config import Limits
from gateway.connection import FLUSH_SECONDS, ByteBudget, ClientConnection, ConnectionPool, Router
from gateway.listeners import Address, Binding, Listener
from gateway.telemetry.metrics import Metrics

log = structlog.get_logger()

BACKLOG: Final = 1024
CALM_SECONDS: Final = 10.0
"""Without bytes for this long, a connection gives back the memory of busier times."""
STALL_SECONDS: Final = 60.0
"""A frame may lie unfinished without a new byte for this long."""
REQUEST_GRACE_SECONDS: Final = 60.0
"""A request still under way this long after its longest timeout is cancelled with its connection."""


class ListenFailed(Exception):
    """An address cannot be listened on; `in_use` if another process has it."""

    def __init__(self, address: Address, flag: str, error: OSError) -> None:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        super().__init__(f"cannot listen on {address}: {reason}; choose another address with {flag}")
        self.address = address
        self.in_use = error.errno == errno.EADDRINUSE


class Server:
    """The client listeners of a gateway."""

    def __init__(self, limits: Limits, router: Router, metrics: Metrics) -> None:
        self._limits = limits
        self._pool = ConnectionPool(limits, router, metrics, ByteBudget(limits.buffer_bytes))
        self._servers: list[asyncio.Server] = []
        self._watch: asyncio.Task[None] | None = None
        self.bound: list[Address] = []
        """Where each listener really listens, in the order of the bindings."""
        metrics.buffer_bytes.set_function(lambda: self._pool.budget.used)
        metrics.connections.set_function(lambda: len(self._pool.connections))

    async def listen(self, bindings: Sequence[Binding]) -> list[Listener]:
        """Open all listeners, or none. Raises ListenFailed."""
        opened: list[tuple[Listener, list[socket.socket]]] = []
        try:
            for binding in bindings:
                sockets = await open_sockets(binding.bind, "--listen")
                bound = Address(binding.bind.host, int(sockets[0].getsockname()[1]))
                self.bound.append(bound)
                advertised = binding.advertised
                opened.append(
                    (Listener(binding.name, advertised.host, advertised.port or bound.port), sockets)
                )
        except ListenFailed:
            for _, sockets in opened:
                _close_all(sockets)
            raise
        for listener, sockets in opened:
            await self._serve(listener, sockets)
        self._watch = asyncio.create_task(self._keep_watch())
        return [listener for listener, _ in opened]

    async def close(self) -> None:
        """Stop listening, answer what is under way for at most `limits.drain_ms`, then cut off the rest."""
        pool = self._pool
        pool.is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(pool.connections.values()):
            connection.finish()
        pool.note_gone()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain_ms / 1000):
                await pool.emptied.wait()
        for connection in list(pool.connections.values()):
            connection.abort("drain_deadline")
        for task in pool.tasks:
            task.cancel()
        await asyncio.gather(*pool.tasks, return_exceptions=True)
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch

    async def _serve(self, listener: Listener, sockets: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for sock in sockets:
            server = await loop.create_server(
                lambda: ClientConnection(self._pool, listener), sock=sock, backlog=BACKLOG
            )
            self._servers.append(server)

    async def _keep_watch(self) -> None:
        interval = min(5.0, self._limits.idle_ms / 4000)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval)
            now = loop.time()
            for connection in list(self._pool.connections.values()):
                reason = self._overdue(connection, now)
                if reason is not None:
                    connection.abort(reason)
                elif now - connection.active_at >= CALM_SECONDS:
                    connection.calm()

    def _overdue(self, connection: ClientConnection, now: float) -> str | None:
        silent = now - connection.active_at
        if connection.is_idle and silent >= self._limits.idle_ms / 1000:
            return "idle"
        if connection.is_stalled and silent >= STALL_SECONDS:
            return "stalled"
        started_at = connection.oldest_started_at()
        longest = self._limits.request_timeout_ms / 1000 + REQUEST_GRACE_SECONDS
        if started_at is not None and now - started_at >= longest:
            return "request_stuck"
        if connection.closing_at and connection.is_idle and now - connection.closing_at >= FLUSH_SECONDS:
            return "unread"
        return None


async def open_sockets(address: Address, flag: str) -> list[socket.socket]:
    """Listening on every address that the host name stands for. Raises ListenFailed, which names the flag."""
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
        # Taken ports show at bind only when somebody listens; two binds would both succeed.
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _close_all(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
