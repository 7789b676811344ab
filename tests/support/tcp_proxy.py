"""A proxy on loopback between a client and a server, which breaks TCP in the ways that networks do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.ports import free_ports

PIECE = 64 * 1024
HOST = "127.0.0.1"


class _Direction:
    """Of one connection: bytes that go on, or are held."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.held: bytearray | None = None

    async def pump(self, link: "Link") -> None:
        with suppress(OSError):
            while piece := await self._reader.read(PIECE):
                if link.delay_s:
                    await asyncio.sleep(link.delay_s)
                if self.held is not None:
                    self.held += piece
                    link.has_held(len(piece))
                else:
                    self.writer.write(piece)
                    await self.writer.drain()
        if self.held is None:
            self.writer.close()

    def release(self) -> None:
        if self.held:
            self.writer.write(bytes(self.held))
        self.held = None


class Link:
    """Forwards every connection to one server. What it holds goes on when it is released, or is lost when the
    connections are cut."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        (self.port,) = free_ports(1)
        self.endpoint = f"{HOST}:{self.port}"
        self._listener: asyncio.Server | None = None
        self._requests: list[_Direction] = []
        self._answers: list[_Direction] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._holds_requests = False
        self._holds_answers = False
        self._held_bytes = 0
        self._grown = asyncio.Event()
        self.connections = 0
        """How many there were so far."""
        self.delay_s = 0.0
        """Of what arrives, in both directions."""

    async def start(self) -> None:
        """After a stop on the same port again, which no outgoing connection was given meanwhile."""
        self._listener = await asyncio.start_server(self._connected, HOST, self.port)

    async def stop(self) -> None:
        """No server is there any more, and all connections are cut."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.cut()

    async def cut(self) -> None:
        """End all connections, and lose what is held; new ones may be made, and nothing is held on them."""
        self._holds_requests = self._holds_answers = False
        self._held_bytes = 0
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for direction in [*self._requests, *self._answers]:
            direction.writer.transport.abort()
        self._requests.clear()
        self._answers.clear()

    async def lead_to(self, server_port: int) -> None:
        """To another server from now on, also for those that are connected: they have to connect again."""
        self._server_port = server_port
        await self.cut()

    def hold_requests(self) -> None:
        """What clients send does not arrive."""
        self._holds_requests = True
        _hold(self._requests)

    def hold_answers(self) -> None:
        """What clients send has its effect, and they learn nothing of it."""
        self._holds_answers = True
        _hold(self._answers)

    def release(self) -> None:
        """What is held arrives now."""
        self._holds_requests = self._holds_answers = False
        self._held_bytes = 0
        for direction in [*self._requests, *self._answers]:
            direction.release()

    async def until_held(self, size: int) -> None:
        """Until that many bytes are held."""
        while self._held_bytes < size:
            self._grown.clear()
            await self._grown.wait()

    def has_held(self, size: int) -> None:
        self._held_bytes += size
        self._grown.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            from_server, to_server = await asyncio.open_connection(HOST, self._server_port)
        except OSError:
            writer.transport.abort()
            return
        self._add(self._requests, _Direction(reader, to_server), self._holds_requests)
        self._add(self._answers, _Direction(from_server, writer), self._holds_answers)

    def _add(self, directions: list[_Direction], direction: _Direction, holds: bool) -> None:
        if holds:
            direction.held = bytearray()
        directions.append(direction)
        pump = asyncio.create_task(direction.pump(self))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)


def _hold(directions: list[_Direction]) -> None:
    for direction in directions:
        if direction.held is None:
            direction.held = bytearray()


@asynccontextmanager
async def linked(port: int) -> AsyncIterator[Link]:
    """A proxy in front of a server on loopback."""
    link = Link(port)
    await link.start()
    try:
        yield link
    finally:
        await link.stop()
