"""Slow readers at the admin address: a whole page for those that go on, an end for others."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from gateway.admin.connections import AdminConnections
from gateway.security.tls import Certificates
from gateway.settings import Tls
from tests.support.certificates import Authority

HEAD_S = 0.3
PAGE = b"x" * 12_000_000
ASK = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"
ASK_LAST = b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]

pytestmark = pytest.mark.serial


async def large(request: web.Request) -> web.Response:
    return web.Response(body=PAGE)


async def small(request: web.Request) -> web.Response:
    # Fits below the mark at which a response is waited for.
    return web.Response(body=PAGE[:30_000])


async def while_served(connections: AdminConnections, visit: Callable[[int], Awaitable[None]]) -> None:
    app = web.Application(middlewares=[connections.watched])
    app.router.add_get("/large", large)
    app.router.add_get("/small", small)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    port = listening.getsockname()[1]
    connections.listen([listening], runner.server)
    try:
        await visit(port)
    finally:
        connections.close()
        await runner.cleanup()


def slow_socket(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    sock.settimeout(10.0)
    sock.connect(("127.0.0.1", port))
    return sock


def read_slowly(sock: socket.socket, over_s: float) -> int:
    """Bytes until the end of the page or of the connection."""
    got, began = 0, time.monotonic()
    while got < len(PAGE):
        data = sock.recv(262_144)
        if not data:
            break
        got += len(data)
        time.sleep(max(0.0, over_s * got / len(PAGE) - (time.monotonic() - began)))
    return got


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("ask", [ASK, ASK_LAST], ids=["kept", "last"])
def test_a_slow_reader_gets_the_whole_of_a_large_page(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], tls: bool, ask: bytes
) -> None:
    connections = AdminConnections(4, HEAD_S)
    client = None
    if tls:
        authority = Authority(tmp_path)
        issued = authority.server()
        settings = Tls(certificate=str(issued.certificate), key=str(issued.key))
        connections.certificates = Certificates(settings)
        client = ssl.create_default_context(cafile=str(authority.file))
        client.check_hostname = False

    def read(port: int) -> int:
        sock = slow_socket(port)
        with sock if client is None else client.wrap_socket(sock) as speaking:
            speaking.sendall(ask)
            return read_slowly(speaking, 6 * HEAD_S)

    async def visit(port: int) -> None:
        assert await asyncio.to_thread(read, port) >= len(PAGE)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(while_served(connections, visit))


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("ask", [ASK, ASK_LAST], ids=["kept", "last"])
def test_one_that_takes_nothing_is_closed_and_counts_until_then(
    monkeypatch: pytest.MonkeyPatch, loop: Callable[[], asyncio.AbstractEventLoop], ask: bytes
) -> None:
    monkeypatch.setattr("gateway.admin.connections.STALLED_S", 4 * HEAD_S)
    connections = AdminConnections(4, HEAD_S)

    async def visit(port: int) -> None:
        sock = await asyncio.to_thread(slow_socket, port)
        with sock:
            sock.sendall(ask)
            await asyncio.sleep(2 * HEAD_S)
            assert len(connections) == 1
            await asyncio.sleep(4 * HEAD_S)
            assert len(connections) == 0
            got = await asyncio.to_thread(read_to_the_end, sock)
            assert 0 < got < len(PAGE)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(while_served(connections, visit))


def read_to_the_end(sock: socket.socket) -> int:
    got = 0
    try:
        while data := sock.recv(262_144):
            got += len(data)
    except ConnectionResetError:
        pass
    return got


def test_readers_that_take_nothing_make_room_for_one_more() -> None:
    connections = AdminConnections(3, HEAD_S)

    async def visit(port: int) -> None:
        slow = [await asyncio.to_thread(slow_socket, port) for _ in range(3)]
        for sock in slow:
            sock.sendall(ASK)
        await asyncio.sleep(2 * HEAD_S)
        assert len(connections) == 3
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ASK.replace(b"large", b"small"))
            async with asyncio.timeout(5.0):
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
        for sock in slow:
            sock.close()

    asyncio.run(while_served(connections, visit))
