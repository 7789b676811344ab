"""Connections of the admin address: few at a time, and closed when they are idle.

A host that can reach the address may open any number of connections and send nothing. These must not use up
the file descriptors of Kafka's clients, nor shut out operators and probes. So their number is bounded; one
more replaces the one that has waited for its client the longest. A connection whose client does not send a
whole request head in time is closed.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from aiohttp import web

from gateway.security.tls import Certificates, refusal
from gateway.telemetry.logs import QuietLog

MAX_ACCEPTS: Final = 16
"""In one event-loop iteration."""
EXHAUSTED_WAIT_S: Final = 1.0
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminConnections:
    """Accepts connections of listening sockets. `head_s`: how long the head of a request may take, from the
    beginning of the connection or from the response before."""

    def __init__(self, max_connections: int, head_s: float) -> None:
        self._max_connections = max_connections
        self._head_s = head_s
        self._waiting_since: dict[asyncio.BaseTransport, float] = {}
        """The loop time since when each connection waits for its client, the longest wait first."""
        self._busy: set[asyncio.BaseTransport] = set()
        """Those with a request under way."""
        self._openings: dict[asyncio.Task[None], None] = {}
        """Those that are not open yet, the oldest first: with TLS they may wait for a handshake."""
        self.certificates: Certificates | None = None
        """With these it speaks TLS."""
        self._listening: Sequence[socket.socket] = ()
        self._sweep: asyncio.TimerHandle | None = None
        self._quiet = QuietLog()

    def __len__(self) -> int:
        return len(self._waiting_since) + len(self._busy)

    def listen(self, sockets: Sequence[socket.socket], protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Serve each connection with a protocol of its own; the sockets are this object's from here on."""
        self._listening = sockets
        self._loop = asyncio.get_running_loop()
        for sock in sockets:
            self._loop.add_reader(sock, self._accept, sock, protocol)
        self._sweep_later()

    def close(self) -> None:
        """Stop listening; connections stay until their protocols end them."""
        if self._sweep is not None:
            self._sweep.cancel()
        for sock in self._listening:
            self._loop.remove_reader(sock)
            sock.close()
        self._listening = ()
        for opening in self._openings:
            opening.cancel()

    @web.middleware
    async def watched(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """While its request is under way a connection does not count as waiting."""
        transport = request.transport
        if transport is None or self._waiting_since.pop(transport, None) is None:
            return await handler(request)
        self._busy.add(transport)
        try:
            return await handler(request)
        finally:
            self._busy.discard(transport)
            self._waiting_since[transport] = self._loop.time()

    def _accept(self, listening: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        for _ in range(MAX_ACCEPTS):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._quiet.warning("admin.accept_failed", reason=error.strerror)
                if error.errno in _EXHAUSTED:
                    self._loop.remove_reader(listening)
                    self._loop.call_later(EXHAUSTED_WAIT_S, self._resume, listening, protocol)
                return
            sock.setblocking(False)
            if len(self._busy) >= self._max_connections:
                sock.close()
                self._quiet.info("admin.connection_refused", reason="too_many")
                continue
            if len(self._openings) >= self._max_connections:
                self._drop_oldest_opening()
            opening = self._loop.create_task(self._open(sock, protocol))
            self._openings[opening] = None
            opening.add_done_callback(self._opened)

    def _drop_oldest_opening(self) -> None:
        oldest = next(iter(self._openings))
        del self._openings[oldest]
        oldest.cancel()
        self._quiet.info("admin.connection_closed", reason="too_many")

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._openings.pop(opening, None)

    def _resume(self, listening: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening, protocol)

    async def _open(self, sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        tls: dict[str, Any] = {}
        if self.certificates is not None:
            tls = {"ssl": self.certificates.context, "ssl_handshake_timeout": self._head_s}
        try:
            transport, _ = await self._loop.connect_accepted_socket(protocol, sock, **tls)
        except OSError as error:
            sock.close()  # the peer is gone already, or speaks no TLS
            if tls:
                self._quiet.info("admin.handshake_failed", reason=refusal(error))
            return
        except asyncio.CancelledError:
            sock.close()
            raise
        self._waiting_since[transport] = self._loop.time()
        if len(self) > self._max_connections:
            self._forget_closed()
        while len(self) > self._max_connections:
            self._end(next(iter(self._waiting_since)), "too_many")

    def _sweep_later(self) -> None:
        self._sweep = self._loop.call_later(min(1.0, self._head_s / 4), self._sweep_now)

    def _sweep_now(self) -> None:
        self._forget_closed()
        too_long = self._loop.time() - self._head_s
        for transport, since in list(self._waiting_since.items()):
            if since > too_long:
                break
            self._end(transport, "no_request")
        self._sweep_later()

    def _end(self, transport: asyncio.BaseTransport, reason: str) -> None:
        del self._waiting_since[transport]
        self._quiet.info("admin.connection_closed", reason=reason)
        # uvloop's transports are not asyncio's class, only of its shape.
        cast(asyncio.Transport, transport).abort()

    def _forget_closed(self) -> None:
        for transport in [one for one in self._waiting_since if one.is_closing()]:
            del self._waiting_since[transport]
