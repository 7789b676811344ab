"""Links in memory: bytes travel in both directions, each after a delay that is drawn, and none overtakes
another."""

import asyncio
import random
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gateway.addresses import Address
from gateway.network.links import Accepted, Listening, TlsOptions
from gateway.wire.apis import ApiKey
from gateway.wire.header import RequestHeader, decode_response_header, encode_request_header
from gateway.wire.messages import codec

PORT = 9092
HOST = "127.0.0.1"
LONGEST_S = 0.001
_LENGTH = struct.Struct(">i")


class Lost(Exception):
    """The connection is lost, or there was no response in time: what became of the request is unknown."""


class _Pipe:
    """One direction. An empty part is the end."""

    def __init__(self, choose: random.Random, deliver: Callable[[bytes], None]) -> None:
        self._choose = choose
        self._deliver = deliver
        self._under_way: deque[bytes] = deque()
        self._last = 0.0

    def send(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + self._choose.uniform(0.00001, LONGEST_S))
        self._under_way.append(data)
        loop.call_at(self._last, self._arrive)

    def _arrive(self) -> None:
        self._deliver(self._under_way.popleft())


class _Transport(asyncio.Transport):
    """Of the gateway."""

    def __init__(self, protocol: asyncio.BufferedProtocol, connection: "Connection") -> None:
        super().__init__({"peername": (HOST, 1), "ssl_object": None, "peercert": None})
        self._protocol = protocol
        self._connection = connection
        self._is_closing = self._is_paused = False
        self._unread = bytearray()

    def arrive(self, data: bytes) -> None:
        if self._is_closing:
            return
        if not data:
            self.close()
            return
        self._unread += data
        self._read()

    def _read(self) -> None:
        while self._unread and not (self._is_paused or self._is_closing):
            buffer = self._protocol.get_buffer(-1)
            size = min(memoryview(buffer).nbytes, len(self._unread))
            memoryview(buffer)[:size] = self._unread[:size]
            del self._unread[:size]
            self._protocol.buffer_updated(size)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._connection.to_client.send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._read)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.to_client.send(b"")
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close


class Connection:
    """Of a client, which may have several requests under way."""

    def __init__(self, choose: random.Random) -> None:
        self.to_client = _Pipe(choose, self._arrive)
        self.to_gateway = _Pipe(choose, self._arrive_there)
        self._transport: _Transport | None = None
        self._early = list[bytes]()
        self._received = bytearray()
        self._pending: dict[int, tuple[ApiKey, int, asyncio.Future[Any]]] = {}
        self._correlation_id = 0
        self.is_lost = False

    def serve(self, protocol: asyncio.BufferedProtocol) -> None:
        self._transport = _Transport(protocol, self)
        protocol.connection_made(self._transport)
        for data in self._early:
            self._transport.arrive(data)

    async def ask(self, key: ApiKey, version: int, message: Any, timeout_s: float = 8.0) -> Any:
        """The response. Raises Lost."""
        if self.is_lost:
            raise Lost
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, "sim")
        frame = encode_request_header(header) + codec.encode_request(key, version, message)
        response = asyncio.get_running_loop().create_future()
        self._pending[self._correlation_id] = key, version, response
        self.to_gateway.send(_LENGTH.pack(len(frame)) + frame)
        try:
            async with asyncio.timeout(timeout_s):
                return await response
        except TimeoutError:
            self.close()
            raise Lost from None

    def close(self) -> None:
        if not self.is_lost:
            self.lose()
            self.to_gateway.send(b"")

    def lose(self) -> None:
        """Nothing comes through any more."""
        self.is_lost = True
        pending, self._pending = self._pending, {}
        for _, _, response in pending.values():
            if not response.done():
                response.set_exception(Lost())

    def _arrive_there(self, data: bytes) -> None:
        if self._transport is None:
            self._early.append(data)
        else:
            self._transport.arrive(data)

    def _arrive(self, data: bytes) -> None:
        if self.is_lost:
            return
        if not data:
            self.lose()
            return
        self._received += data
        while len(self._received) >= 4:
            (size,) = _LENGTH.unpack_from(self._received)
            if len(self._received) < 4 + size:
                return
            frame = memoryview(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
            self._respond(frame)

    def _respond(self, frame: memoryview) -> None:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        key, version, response = self._pending.pop(correlation_id)
        _, body_at = decode_response_header(key, version, frame)
        if not response.done():
            response.set_result(codec.decode_response(key, version, frame[body_at:]))


class _Accepted:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_served = False

    async def serve(self, protocol: asyncio.BufferedProtocol, tls: TlsOptions | None) -> None:
        self._is_served = True
        self._connection.serve(protocol)

    def close(self) -> None:
        if not self._is_served:
            self._connection.to_client.send(b"")


class _Listening:
    def __init__(self, bound: Address) -> None:
        self.bound = bound
        self._waiting: deque[Connection] = deque()
        self._on_waiting: Callable[[], None] | None = None
        self.is_closed = False

    def watch(self, on_waiting: Callable[[], None]) -> None:
        self._on_waiting = on_waiting
        self._notify()

    def unwatch(self) -> None:
        self._on_waiting = None

    def accept(self) -> tuple[Accepted, str]:
        if not self._waiting:
            raise BlockingIOError
        return _Accepted(self._waiting.popleft()), HOST

    def close(self) -> None:
        self.is_closed = True
        self._on_waiting = None

    def connect(self, connection: Connection) -> None:
        self._waiting.append(connection)
        self._notify()

    def _notify(self) -> None:
        if self._waiting and self._on_waiting is not None:
            asyncio.get_running_loop().call_soon(self._on_waiting)


class MemoryLinks:
    """The network of one life of a gateway."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._listening: _Listening | None = None
        self._connections = list[Connection]()
        self._is_cut = False

    async def listen(self, address: Address, flag: str) -> Sequence[Listening]:
        self._listening = _Listening(Address(address.host, address.port or PORT))
        return [self._listening]

    def connect(self) -> Connection:
        """Raises Lost."""
        if self._is_cut or self._listening is None or self._listening.is_closed:
            raise Lost
        connection = Connection(self._choose)
        self._connections.append(connection)
        self._listening.connect(connection)
        return connection

    def cut(self) -> None:
        """The gateway is gone: so are all connections."""
        self._is_cut = True
        for connection in self._connections:
            connection.lose()
