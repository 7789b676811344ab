"""The links of a host: TCP sockets, and the event loop's transports over them."""

import asyncio
import socket
from collections.abc import Callable, Sequence

from gateway.addresses import Address
from gateway.network.acceptor import open_sockets
from gateway.network.links import Accepted, Listening, TlsOptions
from gateway.security.tls import alert_by


class AcceptedSocket:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def serve(self, protocol: asyncio.BufferedProtocol, tls: TlsOptions | None) -> None:
        loop = asyncio.get_running_loop()
        # From here on the loop's transport owns the descriptor.
        given = socket.socket(fileno=self._sock.detach())
        given.setblocking(False)
        if tls is None:
            await loop.connect_accepted_socket(lambda: protocol, given)
            return
        alert_by(given)
        await loop.connect_accepted_socket(
            lambda: protocol,
            given,
            ssl=tls.context,
            ssl_handshake_timeout=tls.handshake_s,
            ssl_shutdown_timeout=tls.shutdown_s,
        )

    def close(self) -> None:
        self._sock.close()


class ListeningSocket:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    @property
    def bound(self) -> Address:
        host, port = self._sock.getsockname()[:2]
        return Address(str(host), int(port))

    def watch(self, on_waiting: Callable[[], None]) -> None:
        self._loop.add_reader(self._sock, on_waiting)

    def unwatch(self) -> None:
        self._loop.remove_reader(self._sock)

    def accept(self) -> tuple[Accepted, str]:
        sock, address = self._sock.accept()
        sock.setblocking(False)
        # Also finds peers that are gone without closing.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return AcceptedSocket(sock), str(address[0])

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()


class Sockets:
    async def listen(self, address: Address, flag: str) -> Sequence[Listening]:
        return [ListeningSocket(sock) for sock in await open_sockets(address, flag)]
