"""A server over real sockets: order, push-back, bounds, and the end of connections.

The handlers are the test's, so that it can hold each request for as long as it likes.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial

import pytest

from gateway.addresses import Address, Binding
from gateway.completion import Cancellable, Completion
from gateway.network.acceptor import ListenFailed
from gateway.network.pipeline import MAX_AT_ONCE, Peer
from gateway.network.pool import PATIENCE_SECONDS, STILL_SECONDS
from gateway.network.server import Server
from gateway.response import Buffers, Response
from gateway.settings import MIB, Limits
from gateway.telemetry.metrics import Metrics
from gateway.wire.apis import ApiKey
from gateway.wire.connection import Request
from gateway.wire.errors import Malformed
from tests.support.raw import request

PRODUCE, METADATA, JOIN_GROUP = ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP
HEARTBEAT = ApiKey.HEARTBEAT
LOOPBACK = Address("127.0.0.1", 0)
SHORT_S = 0.1
LONG_S = 5.0
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
        return Response([struct.pack(">i", number), bytes(self.answer_bytes)], on_sent)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, key: ApiKey, *numbers: int, body: bytes = b"") -> None:
        for number in numbers:
            self.writer.write(request(key, 0, body, correlation_id=number))

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


async def test_responses_are_sent_in_the_order_of_the_requests() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2, 3)
        await until(lambda: gateway.requests.started == [1, 2, 3])
        gateway.requests.released.set()
        assert await client.responses(3) == [1, 2, 3]


async def test_thousands_of_requests_that_are_answered_at_once_are_answered_in_order() -> None:
    async with serving(requests_in_flight=10_000) as gateway, gateway.client() as client:
        gateway.requests.at_once = range(2, 6_000)
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        client.send(PRODUCE, *range(2, 6_000))
        client.send(METADATA, 6_000)
        await until(lambda: gateway.held_bytes() > 100_000)
        gateway.requests.released.set()
        assert await client.responses(6_000) == list(range(1, 6_001))


async def test_an_inline_request_starts_when_all_before_it_are_answered() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept, gateway.requests.at_once = {1, 3}, {2, 4, 5}
        client.send(PRODUCE, 1)
        client.send(HEARTBEAT, 2, 3, 4)
        client.send(PRODUCE, 5)
        await until(lambda: gateway.requests.started == [1])
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1]
        gateway.requests.kept = {3}
        gateway.requests.released.set()
        assert await client.responses(5) == [1, 2, 3, 4, 5]
        assert gateway.requests.started == [1, 2, 3, 4, 5]


async def test_an_inline_request_that_waits_holds_back_those_after_it() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept, gateway.requests.at_once = {2}, {1, 3, 4}
        client.send(HEARTBEAT, 1, 2, 3)
        client.send(PRODUCE, 4)
        assert await client.response() == 1
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1, 2]
        gateway.requests.released.set()
        assert await client.responses(3) == [2, 3, 4]


async def test_many_inline_requests_of_one_connection_do_not_hold_back_other_connections() -> None:
    async with serving(requests_in_flight=10_000) as gateway, gateway.client() as client:
        last = 4 * MAX_AT_ONCE
        gateway.requests.at_once = range(2, last + 1)
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        client.send(HEARTBEAT, *range(2, last + 1))
        await until(lambda: gateway.held_bytes() >= last * FRAME_BYTES)
        gateway.requests.released.set()
        assert await client.responses(last) == list(range(1, last + 1))
        assert gateway.requests.max_in_iteration == MAX_AT_ONCE
        assert gateway.held_bytes() == 0


async def test_a_request_that_fails_at_once_closes_after_those_before_it() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.at_once, gateway.requests.failing = {3}, {3: ZeroDivisionError()}
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2, 3, 4)
        await until(lambda: gateway.requests.started == [3, 1, 2])
        gateway.requests.released.set()
        assert await client.responses(3) == [1, 2, None]


async def test_a_request_that_is_not_pipelined_starts_when_all_before_it_are_answered() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2)
        client.send(METADATA, 3, 4)
        client.send(PRODUCE, 5)
        await until(lambda: gateway.requests.started == [1, 2])
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1, 2]
        gateway.requests.released.set()
        assert await client.responses(5) == [1, 2, 3, 4, 5]
        assert gateway.requests.started == [1, 2, 3, 4, 5]


async def test_a_request_may_take_its_time_from_when_those_before_it_are_answered() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(JOIN_GROUP, 1)
        client.send(METADATA, 2)
        await until(lambda: gateway.requests.started == [1])
        await asyncio.sleep(SHORT_S)
        released_at = asyncio.get_running_loop().time()
        gateway.requests.released.set()
        assert await client.responses(2) == [1, 2]
        assert gateway.requests.taken_at[2] >= released_at


@pytest.mark.parametrize("before", [PRODUCE, METADATA])
async def test_what_was_sent_before_closing_is_accepted_though_it_had_to_wait(before: ApiKey) -> None:
    async with serving() as gateway:
        async with gateway.client() as client:
            # From then on even Produce requests are taken one by one.
            gateway.requests.muting = {1: 0.01}
            gateway.requests.kept = {2}
            client.send(PRODUCE, 1)
            assert await client.response() == 1
            client.send(before, 2)
            client.send(PRODUCE, 3)
            client.send(METADATA, 4)
            client.send(PRODUCE, 5)
            await until(lambda: gateway.requests.started == [1, 2])
            await asyncio.sleep(SHORT_S)
        await until(lambda: gateway.requests.started == [1, 2, 3, 5])
        gateway.requests.released.set()
        await until(lambda: gateway.connections() == gateway.held_bytes() == 0)
        assert gateway.requests.started == [1, 2, 3, 5]


@pytest.mark.serial
async def test_a_muted_connection_is_answered_at_once_and_served_no_more_for_a_while() -> None:
    async with serving() as gateway, gateway.client() as muted, gateway.client() as other:
        gateway.requests.muting = {1: 0.5}
        began = asyncio.get_running_loop().time()
        muted.send(PRODUCE, 1)
        assert await muted.response() == 1
        muted.send(METADATA, 2, 3)
        other.send(METADATA, 4)
        assert await other.response() == 4
        assert asyncio.get_running_loop().time() - began < 0.4
        assert gateway.requests.started == [1, 4]
        assert await muted.responses(2) == [2, 3]
        assert asyncio.get_running_loop().time() - began >= 0.49


async def test_what_is_here_already_waits_for_the_end_of_the_mute() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 0.3}
        client.send(METADATA, 1, 2)
        assert await client.response() == 1
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1]
        assert await client.response() == 2


@pytest.mark.serial
async def test_the_longer_of_two_mutes_holds() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 0.5, 2: 0.1}
        began = asyncio.get_running_loop().time()
        client.send(PRODUCE, 1, 2)
        assert await client.responses(2) == [1, 2]
        client.send(PRODUCE, 3)
        assert await client.response() == 3
        assert asyncio.get_running_loop().time() - began >= 0.49


async def test_after_a_mute_produce_requests_are_taken_one_by_one() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 0.05}
        gateway.requests.kept = {2}
        client.send(PRODUCE, 1)
        assert await client.response() == 1
        client.send(PRODUCE, 2, 3)
        await until(lambda: gateway.requests.started == [1, 2])
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1, 2]
        gateway.requests.released.set()
        assert await client.responses(2) == [2, 3]


async def test_a_mute_lasts_for_half_the_idle_time_at_most() -> None:
    async with serving(idle_ms=1000) as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 60.0}
        client.send(METADATA, 1, 2)
        assert await client.responses(2) == [1, 2]


async def test_a_draining_server_completes_what_a_muted_connection_has_sent() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 60.0}
        client.send(METADATA, 1, 2)
        assert await client.response() == 1
        closing_server = asyncio.create_task(gateway.server.close())
        assert await client.responses(2) == [2, None]
        await asyncio.wait_for(closing_server, LONG_S)


async def test_connections_do_not_wait_for_each_other() -> None:
    async with serving() as gateway, gateway.client() as slow, gateway.client() as quick:
        gateway.requests.kept = {1}
        slow.send(METADATA, 1)
        quick.send(METADATA, 2)
        assert await quick.response() == 2


@pytest.mark.parametrize(
    "refused",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        request(999, 0),
        request(METADATA, 99),
        struct.pack(">ihhih", 10, METADATA, 0, 2, 100),
    ],
    ids=["negative size", "no size", "huge size", "unknown API", "unknown version", "cut-off client id"],
)
async def test_a_request_that_breaks_the_rules_closes_its_connection_after_earlier_responses(
    refused: bytes,
) -> None:
    async with serving() as gateway, gateway.client() as client, gateway.client() as other:
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        client.writer.write(refused)
        client.send(METADATA, 2)
        await until(lambda: gateway.requests.started == [1])
        gateway.requests.released.set()
        assert await client.responses(2) == [1, None]
        assert gateway.requests.started == [1]
        other.send(METADATA, 3)
        assert await other.response() == 3


@pytest.mark.parametrize("failure", [Malformed("half a string"), RuntimeError("a bug")])
async def test_a_request_that_fails_closes_its_connection_and_no_other(failure: Exception) -> None:
    async with serving() as gateway, gateway.client() as client, gateway.client() as other:
        gateway.requests.failing = {2: failure}
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2, 3)
        await until(lambda: gateway.requests.started == [1, 2, 3])
        gateway.requests.released.set()
        assert await client.responses(2) == [1, None]
        other.send(METADATA, 4)
        assert await other.response() == 4


async def test_reading_pauses_while_too_many_requests_are_unanswered() -> None:
    async with serving(requests_in_flight=4) as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, *range(1, 101), body=bytes(3000))
        await until(lambda: len(gateway.requests.started) >= 4)
        await asyncio.sleep(SHORT_S)
        # What arrived in the same receive is taken, never the next receive.
        assert len(gateway.requests.started) <= 4 + 64 * 1024 // 3000
        gateway.requests.released.set()
        assert await client.responses(100) == list(range(1, 101))


async def test_all_connections_together_hold_no_more_than_the_budget() -> None:
    async with serving(buffer_bytes=MIB) as gateway, gateway.client() as large, gateway.client() as small:
        gateway.requests.kept = {1, 2, 3}
        large.send(METADATA, 1, body=bytes(MIB))
        await until(lambda: gateway.requests.started == [1])
        small.send(METADATA, 2)
        await until(lambda: 2 in gateway.requests.started)
        small.send(METADATA, 3, body=bytes(MIB // 4))
        await asyncio.sleep(SHORT_S)
        assert MIB <= gateway.held_bytes() < MIB + 1000
        gateway.requests.released.set()
        assert await large.response() == 1
        assert await small.responses(2) == [2, 3]
        await until(lambda: gateway.held_bytes() == 0)


async def test_unfinished_frames_that_hold_too_much_are_closed_the_oldest_first() -> None:
    async with serving(buffer_bytes=MIB) as gateway, gateway.client() as first, gateway.client() as second:
        # An unfinished frame has room for up to twice what has come of it: 1 MiB each. A quarter more than
        # the budget is allowed.
        part = struct.pack(">i", 10 * MIB) + bytes(MIB * 5 // 8)
        first.writer.write(part)
        await until(lambda: gateway.held_bytes() >= MIB)
        await asyncio.sleep(SHORT_S)
        assert gateway.connections() == 2
        second.writer.write(part)
        assert await first.response() is None
        assert gateway.connections() == 1


async def test_a_muted_client_that_keeps_half_a_frame_is_closed_when_memory_is_short() -> None:
    async with serving(buffer_bytes=MIB) as gateway, gateway.client() as muted, gateway.client() as other:
        gateway.requests.kept, gateway.requests.muting = {1}, {1: 60.0}
        part = struct.pack(">i", 10 * MIB) + bytes(MIB * 5 // 8)
        muted.send(METADATA, 1)
        muted.writer.write(part)
        await until(lambda: gateway.held_bytes() >= MIB)
        gateway.requests.released.set()
        assert await muted.response() == 1
        await asyncio.sleep(SHORT_S)
        other.writer.write(part)
        assert await muted.response() is None
        assert gateway.connections() == 1


async def test_room_for_a_frame_that_grows_is_made_before_it_is_taken() -> None:
    async with serving(buffer_bytes=4 * MIB) as gateway:
        most = 0.0
        async with AsyncExitStack() as stack:
            for _ in range(8):
                client = await stack.enter_async_context(gateway.client())
                client.writer.write(struct.pack(">i", 10 * MIB) + bytes(3 * MIB))
                for _ in range(20):
                    await asyncio.sleep(0.005)
                    most = max(most, gateway.held_bytes())
        assert 3 * MIB <= most <= 5 * MIB


async def test_a_client_that_does_not_read_gets_no_further_request_started() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as client:
        gateway.requests.answer_bytes = 8 * MIB
        client.send(METADATA, *range(1, 11))
        await until(lambda: gateway.held_bytes() > MIB)
        await asyncio.sleep(SHORT_S)
        assert len(gateway.requests.started) <= 3
        assert await client.responses(10) == list(range(1, 11))


async def test_a_response_holds_its_share_until_its_client_has_read_it_or_is_gone() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as reads, gateway.client() as dies:
        gateway.requests.holding, gateway.requests.answer_bytes = True, 32 * MIB
        reads.send(METADATA, 1)
        dies.send(METADATA, 2)
        await until(lambda: gateway.held_bytes() > 2 * MIB)
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.released_shares == []
        assert await reads.response() == 1
        await until(lambda: gateway.requests.released_shares == [1])
        dies.writer.transport.abort()
        await until(lambda: gateway.requests.released_shares == [1, 2])


async def test_a_response_holds_its_share_while_it_is_encoded() -> None:
    async with serving() as gateway, gateway.client() as reads, gateway.client() as dies:
        gateway.requests.holding, gateway.requests.encoding = True, asyncio.Event()
        reads.send(METADATA, 1)
        await until(lambda: gateway.requests.started == [1])
        # A request after it, and two looks of the server at its connections.
        reads.send(METADATA, 3)
        dies.send(METADATA, 2)
        await asyncio.sleep(1.2)
        assert gateway.requests.released_shares == []
        dies.writer.transport.abort()
        await until(lambda: gateway.requests.released_shares == [2])
        gateway.requests.encoding.set()
        assert await reads.responses(2) == [1, 3]
        await until(lambda: gateway.requests.released_shares == [2, 1, 3])


async def test_a_small_response_that_is_sent_at_once_releases_its_share_at_once() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.holding = True
        client.send(METADATA, 1)
        assert await client.response() == 1
        await until(lambda: gateway.requests.released_shares == [1])


async def test_only_a_client_that_leaves_responses_unread_while_others_starve_is_closed() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as mute, gateway.client() as fine:
        gateway.requests.holding, gateway.requests.answer_bytes = True, 32 * MIB
        mute.send(METADATA, 1)
        fine.send(METADATA, 2)
        assert await fine.response() == 2
        await asyncio.sleep(PATIENCE_SECONDS + 0.5)
        assert gateway.connections() == 2
        gateway.requests.starving = True
        await until(lambda: gateway.connections() == 1)
        assert sorted(gateway.requests.released_shares) == [1, 2]
        gateway.requests.answer_bytes = 0
        fine.send(METADATA, 3)
        assert await fine.response() == 3


@pytest.mark.serial
async def test_while_others_wait_a_client_that_reads_nothing_is_closed_and_a_slow_one_is_not() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as still, gateway.client() as slow:
        gateway.requests.holding, gateway.requests.answer_bytes = True, 64 * MIB
        still.send(METADATA, 1)
        slow.send(METADATA, 2)
        await until(lambda: sorted(gateway.requests.started) == [1, 2])
        gateway.requests.waiting = True
        ends_at = asyncio.get_running_loop().time() + STILL_SECONDS + 1.5
        while asyncio.get_running_loop().time() < ends_at:
            assert await slow.reader.read(MIB)
            await asyncio.sleep(SHORT_S)
        assert gateway.connections() == 1
        gateway.requests.waiting = False
        assert gateway.requests.released_shares == [1]


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async with serving(idle_ms=1000) as gateway, gateway.client() as idle, gateway.client() as waiting:
        gateway.requests.kept = {1}
        waiting.send(METADATA, 1)
        await until(lambda: gateway.requests.started == [1])
        assert await idle.response() is None
        await asyncio.sleep(SHORT_S)
        gateway.requests.released.set()
        assert await waiting.response() == 1


async def test_connections_beyond_the_limit_are_closed() -> None:
    async with serving(connections=1) as gateway, gateway.client() as first:
        first.send(METADATA, 1)
        assert await first.response() == 1
        async with gateway.client() as second:
            assert await second.response() is None
        first.send(METADATA, 2)
        assert await first.response() == 2


async def test_a_lost_connection_ends_its_requests_but_not_what_it_has_produced() -> None:
    async with serving() as gateway:
        gateway.requests.kept = {1, 2}
        async with gateway.client() as producer, gateway.client() as searcher:
            producer.send(PRODUCE, 1)
            searcher.send(METADATA, 2)
            await until(lambda: sorted(gateway.requests.started) == [1, 2])
        await until(lambda: gateway.connections() == 0)
        await until(lambda: gateway.requests.cancelled == [2])
        assert gateway.held_bytes() > 0
        gateway.requests.released.set()
        await until(lambda: gateway.held_bytes() == 0)
        assert gateway.requests.cancelled == [2]


async def test_a_lost_connection_ends_its_inline_request() -> None:
    async with serving() as gateway:
        gateway.requests.kept = {1}
        async with gateway.client() as client:
            client.send(HEARTBEAT, 1, 2)
            await until(lambda: gateway.requests.started == [1])
        await until(lambda: gateway.requests.cancelled == [1])
        await until(lambda: gateway.held_bytes() == 0 and gateway.connections() == 0)
        assert gateway.requests.started == [1]


async def test_a_stop_answers_requests_under_way_and_accepts_no_new_ones() -> None:
    async with serving() as gateway, gateway.client() as client, gateway.client() as idle:
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        await until(lambda: gateway.requests.started == [1])
        closing_server = asyncio.create_task(gateway.server.close())
        assert await idle.response() is None
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", gateway.server.bound[0].port)
        client.send(METADATA, 2)
        gateway.requests.released.set()
        assert await client.responses(2) == [1, None]
        await closing_server
        assert gateway.requests.started == [1]


async def test_a_stop_cuts_off_what_outlasts_the_drain() -> None:
    async with serving(drain_ms=50) as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1)
        await until(lambda: gateway.requests.started == [1])
        await gateway.server.close()
        assert gateway.requests.cancelled == [1]
        assert await client.response() is None


async def test_a_stop_does_not_wait_for_ever_for_what_a_lost_connection_has_left() -> None:
    async with serving(drain_ms=50) as gateway:
        gateway.requests.kept = {1}
        async with gateway.client() as client:
            client.send(PRODUCE, 1)
            await until(lambda: gateway.requests.started == [1])
        await until(lambda: gateway.connections() == 0)
        async with asyncio.timeout(LONG_S):
            await gateway.server.close()
        assert gateway.requests.cancelled == [1]


async def test_a_port_in_use_is_refused_with_the_flag_to_change() -> None:
    async with serving() as gateway:
        taken = Address("127.0.0.1", gateway.server.bound[0].port)
        second = Server(Limits(), HeldRequests(), Metrics())
        with pytest.raises(ListenFailed, match="--listen") as refusal:
            await second.listen([Binding("PLAINTEXT", taken, taken)])
        assert refusal.value.in_use


async def test_a_host_that_is_not_here_is_refused() -> None:
    absent = Address("192.0.2.1", 0)
    server = Server(Limits(), HeldRequests(), Metrics())
    with pytest.raises(ListenFailed, match="--listen") as refusal:
        await server.listen([Binding("PLAINTEXT", absent, absent)])
    assert not refusal.value.in_use


async def test_a_request_that_does_not_end_loses_its_connection_unless_it_waits_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.network.server.REQUEST_GRACE_SECONDS", 0.0)
    async with serving(request_timeout_ms=1000, idle_ms=1000) as gateway, gateway.client() as stuck:
        async with gateway.client() as may_park:
            gateway.requests.kept = {1, 2}
            may_park.send(JOIN_GROUP, 1)
            stuck.send(METADATA, 2)
            assert await stuck.response() is None
            await asyncio.sleep(0.6)
            gateway.requests.released.set()
            assert await may_park.response() == 1
