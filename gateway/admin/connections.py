"""Connections of the admin address: few at a time, and closed when they are idle.

A host that can reach the address may open any number of connections and send nothing. These must not use up
the file descriptors of Kafka's clients, nor shut out operators and probes. So their number is bounded; one
more replaces the one that has waited for its client the longest. A connection is closed whose client does not
send a whole request in time, or for much longer takes nothing of its response.
"""

import asyncio
import errno
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aiohttp import web

from gateway.security.tls import Certificates, refusal
from gateway.telemetry.logs import QuietLog

MAX_ACCEPTS: Final = 16
"""In one event-loop iteration."""
EXHAUSTED_WAIT_S: Final = 1.0
STALLED_S: Final = 60.0
"""How long a client may take nothing of its response."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _Unsent:
    size_bytes: int
    since: float
    """The loop time since when it is as much."""


class AdminConnections:
    """Accepts connections of listening sockets. `head_s`: how long the head of a request may take, from the
    beginning of the connection or from the response before, and then its body."""

    def __init__(self, max_connections: int, head_s: float) -> None:
        self._max_connections = max_connections
        self._head_s = head_s
        self._waiting_since: dict[asyncio.BaseTransport, float] = {}
        """The loop time since when each connection waits for its client, the longest wait first."""
        self._bodies: set[asyncio.BaseTransport] = set()
        """Those of them that wait for the rest of a request."""
        self._busy: set[asyncio.BaseTransport] = set()
        """Those with a request under way."""
        self._sending: dict[asyncio.BaseTransport, _Unsent] = {}
        """Those whose client has not taken all of a response yet, the longest first."""
        self._openings: dict[asyncio.Task[None], None] = {}
        """Those that are not open yet, the oldest first: with TLS they may wait for a handshake."""
        self.certificates: Certificates | None = None
        """With these it speaks TLS."""
        self._listening: Sequence[socket.socket] = ()
        self._sweep: asyncio.TimerHandle | None = None
        self._quiet = QuietLog()

    def __len__(self) -> int:
        return len(self._waiting_since) + len(self._busy) + len(self._sending)

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
        if transport is None or not self._forget(transport):
            return await handler(request)
        self._busy.add(transport)
        try:
            return await handler(request)
        finally:
            self._busy.discard(transport)
            self._waiting_since[transport] = self._loop.time()

    async def body_of(self, request: web.Request) -> bytes:
        """The body of a request under way. Until it has come whole its connection waits for its client, and
        one more connection may replace it. Raises TimeoutError after `head_s`, OSError if the client is gone,
        and what aiohttp raises for a body that is none."""
        transport = request.transport
        if transport in self._busy:
            self._busy.discard(transport)
            self._bodies.add(transport)
            self._waiting_since[transport] = self._loop.time()
        try:
            async with asyncio.timeout(self._head_s):
                return await request.read()
        finally:
            if transport in self._bodies:
                self._bodies.discard(transport)
                if self._forget(transport):
                    self._busy.add(transport)

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
        for _ in range(len(self) - self._max_connections):
            self._end(self._replaced_by(transport), "too_many")

    def _replaced_by(self, newest: asyncio.BaseTransport) -> asyncio.BaseTransport:
        """The connection that goes for the newest one: one that waits, else one that sends."""
        now = self._loop.time()
        for one in list(self._waiting_since):
            if one is not newest and (one in self._bodies or not self._sends(one, now)):
                return one
        return next(iter(self._sending), newest)

    def _sweep_later(self) -> None:
        self._sweep = self._loop.call_later(min(1.0, self._head_s / 4), self._sweep_now)

    def _sweep_now(self) -> None:
        self._forget_closed()
        now = self._loop.time()
        for transport, since in list(self._waiting_since.items()):
            if since > now - self._head_s:
                break
            if transport not in self._bodies and not self._sends(transport, now):
                self._end(transport, "no_request")
        for transport in list(self._sending):
            if not self._sends(transport, now):
                del self._sending[transport]
                self._waiting_since[transport] = now
            elif self._sending[transport].since <= now - STALLED_S:
                self._end(transport, "not_read")
        self._sweep_later()

    def _sends(self, transport: asyncio.BaseTransport, now: float) -> bool:
        """Whether its client has not taken all of a response yet; if so, this is where it is noted."""
        size = _unsent_bytes(transport)
        if not size:
            return False
        unsent = self._sending.get(transport)
        if unsent is None or unsent.size_bytes != size:
            self._waiting_since.pop(transport, None)
            self._sending[transport] = _Unsent(size, now)
        return True

    def _forget_closed(self) -> None:
        """But those that still send before they close."""
        now = self._loop.time()
        for transport in [one for one in self._waiting_since if one.is_closing()]:
            if not self._sends(transport, now):
                del self._waiting_since[transport]

    def _end(self, transport: asyncio.BaseTransport, reason: str) -> None:
        self._forget(transport)
        self._quiet.info("admin.connection_closed", reason=reason)
        # uvloop's transports are not asyncio's class, only of its shape.
        cast(asyncio.Transport, transport).abort()

    def _forget(self, transport: asyncio.BaseTransport) -> bool:
        """Whether it waited or sent."""
        waited = self._waiting_since.pop(transport, None)
        return self._sending.pop(transport, None) is not None or waited is not None


def _unsent_bytes(transport: asyncio.BaseTransport) -> int:
    """What a client has not taken yet. A transport over TLS does not say how much the one below it has; while
    that has anything, the queue of the socket is not empty."""
    size = cast(asyncio.Transport, transport).get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sock is None or transport.is_closing() or sys.platform != "linux":
        return size
    try:
        (queued,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
    except OSError:
        return size
    return size + int(queued)
