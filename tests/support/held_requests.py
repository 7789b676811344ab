"""A server over real sockets whose handlers are the test's, so that it can hold each request as long as it
likes."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager, closing
from functools import partial

from gateway.addresses import Address, Binding
from gateway.completion import Cancellable, Completion
from gateway.network.pipeline import Peer
from gateway.network.server import Server
from gateway.response import Buffers, Response
from gateway.settings import Limits
from gateway.telemetry.metrics import Metrics
from gateway.wire.apis import ApiKey
from gateway.wire.connection import Request
from tests.support.raw import request

PRODUCE, METADATA, JOIN_GROUP = ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP
HEARTBEAT = ApiKey.HEARTBEAT
LOOPBACK = Address("127.0.0.1", 0)
SHORT_S = 0.1
LONG_S = 60.0
FRAME_BYTES = len(request(HEARTBEAT, 0, b"")) - 4


class HeldRequests:
    """Responds to a request with its correlation id once it is released.

    Produce is pipelined, Heartbeat inline, and JoinGroup may park.
    """

    def __init__(self) -> None:
        self.served = {int(PRODUCE): (0, 13), int(METADATA): (0, 13), int(JOIN_GROUP): (0, 9)}
        self.served[int(HEARTBEAT)] = (0, 4)
        self.started: list[int] = []
        self.taken_at: dict[int, float] = {}
        """From which loop time the wait of a request is counted."""
        self.cancelled: list[int] = []
        self.released = asyncio.Event()
        self.kept: set[int] = set()
        self.at_once: Container[int] = ()
        """Pipelined and inline requests that are completed before `start` returns."""
        self.failing: dict[int, Exception] = {}
        self.muting: dict[int, float] = {}
        """For how long a request has its connection muted."""
        self.answer_bytes = 0
        self.holding = False
        self.encoding: asyncio.Event | None = None
        """Set when responses that hold their share are encoded."""
        self.released_shares: list[int] = []
        """Responses that have released their share of a budget."""
        self.starving = False
        self.waiting = False
        self.in_iteration = self.max_in_iteration = 0
        """Requests completed at once in this iteration of the event loop, and the most ever."""

    def is_pipelined(self, api_key: int) -> bool:
        return api_key == PRODUCE

    def is_inline(self, api_key: int) -> bool:
        return api_key == HEARTBEAT

    def may_park(self, api_key: int) -> bool:
        return api_key == JOIN_GROUP

    def start(
        self, request: Request, peer: Peer, received_at: float, completion: Completion[Buffers | None]
    ) -> Cancellable:
        number = request.header.correlation_id
        if number not in self.at_once:
            return asyncio.create_task(self._complete(request, peer, received_at, completion))
        self.started.append(number)
        if not self.in_iteration:
            asyncio.get_running_loop().call_soon(self._end_iteration)
        self.in_iteration += 1
        self.max_in_iteration = max(self.max_in_iteration, self.in_iteration)
        if number in self.failing:
            completion.set_exception(self.failing[number])
        else:
            completion.set_result([struct.pack(">i", number)])
        return self

    def _end_iteration(self) -> None:
        self.in_iteration = 0

    def cancel(self) -> None:
        """A request that has its response at once leaves nothing to cancel."""

    async def _complete(
        self, request: Request, peer: Peer, received_at: float, completion: Completion[Buffers | None]
    ) -> None:
        try:
            response = await self.answer(request, peer, received_at)
        except Exception as error:
            completion.set_exception(error)
        else:
            completion.set_result(response.buffers)

    def starved_since(self) -> float:
        return 0.001 if self.starving else 0.0

    def waiting_since(self) -> float:
        return 0.001 if self.waiting or self.starving else 0.0

    async def answer(self, request: Request, peer: Peer, received_at: float) -> Response:
        number = request.header.correlation_id
        self.started.append(number)
        self.taken_at[number] = received_at
        try:
            if number in self.failing:
                raise self.failing[number]
            if number in self.kept:
                await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        on_sent = partial(self.released_shares.append, number) if self.holding else None
        try:
            if self.encoding is not None:
                await self.encoding.wait()
        except asyncio.CancelledError:
            if on_sent is not None:
                on_sent()
            raise
        if number in self.muting:
            peer.mute(self.muting[number])
        # No empty buffer: asyncio's own transports of Python 3.12 and 3.13 never get rid of one.
        rest = [bytes(self.answer_bytes)] if self.answer_bytes else []
        return Response([struct.pack(">i", number), *rest], on_sent)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, key: ApiKey, *numbers: int, body: bytes = b"") -> None:
        for number in numbers:
            self.writer.write(request(key, 0, body, correlation_id=number))

    def stop_reading(self) -> None:
        """What comes stays in the system, and then in the gateway."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def go_on_reading(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def response(self) -> int | None:
        """The correlation id of the next response; None when the gateway has closed the connection."""
        async with asyncio.timeout(LONG_S):
            try:
                size, number = struct.unpack(">ii", await self.reader.readexactly(8))
                await self.reader.readexactly(size - 4)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return None
            return int(number)

    async def responses(self, count: int) -> list[int | None]:
        return [await self.response() for _ in range(count)]


class Serving:
    def __init__(self, server: Server, requests: HeldRequests, metrics: Metrics) -> None:
        self.server = server
        self.requests = requests
        self.metrics = metrics

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.bound[0].port)
        with closing(writer):
            yield Client(reader, writer)

    def held_bytes(self) -> float:
        return self.metrics.registry.get_sample_value("dragoman_buffer_bytes") or 0.0

    def connections(self) -> float:
        return self.metrics.registry.get_sample_value("dragoman_connections") or 0.0


@asynccontextmanager
async def serving(**limits: int) -> AsyncIterator[Serving]:
    requests, metrics = HeldRequests(), Metrics()
    server = Server(Limits(**{"drain_ms": 5000, **limits}), requests, metrics)
    await server.listen([Binding("PLAINTEXT", LOOPBACK, LOOPBACK)])
    try:
        yield Serving(server, requests, metrics)
    finally:
        requests.released.set()
        await server.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; what never comes true fails the test."""
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110 - a test may look from outside only
            await asyncio.sleep(0.005)
