"""The requests of one connection, in order.

Kafka works on one request of a connection at a time. Here Produce is *pipelined*: it starts while earlier
Produce requests are unanswered, so that one draft takes many of them. Every other request starts when all
before it are answered, and no later one starts before it is done. So a client sees the same order as with
Kafka, and a connection prepares at most one response of unknown size.

A pipelined or inline request has no task: it is accepted in the iteration of the event loop in which it
arrived, and its completion sends the response. Every other request is a task. A lost connection cancels its
requests, except pipelined ones. Pipelined requests that wait are started nevertheless: what a client has sent
with acks=0 before closing is still stored.

Muting. A client over a quota gets its response at once. Then, for its throttle time, nothing is read from its
connection, and none of the requests that have arrived is started. For some time after that its Produce
requests are started one by one, so that the first that exceeds the quota mutes it again.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.addresses import Listener
from gateway.completion import Cancellable, Completion
from gateway.network.outbound import Outbound
from gateway.response import Buffers, Response
from gateway.wire.connection import Connection, Request

MAX_AT_ONCE: Final = 32
"""Inline requests of a connection that are started in one iteration: others wait meanwhile."""
ONE_BY_ONE_SECONDS: Final = 30.0
"""How long after it was muted a connection has its Produce requests started one by one."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a request comes from: the connection's number, the listener it came in by, and the other end."""

    connection_id: int
    listener: Listener
    host: str
    principal: str
    mute: Callable[[float], None] = lambda _: None
    """Start no further request of the connection for this number of seconds."""
    is_lost: Callable[[], bool] = lambda: False


class Router(Protocol):
    """Answers requests; `gateway.router.RequestRouter` in a gateway."""

    @property
    def served(self) -> dict[int, tuple[int, int]]: ...

    def is_pipelined(self, api_key: int) -> bool: ...

    def is_inline(self, api_key: int) -> bool:
        """Whether such a request is given to `start` too, although it is not pipelined."""
        ...

    def may_park(self, api_key: int) -> bool:
        """Whether such a request waits for other clients, within deadlines of its own."""
        ...

    def starved_since(self) -> float:
        """If requests wait for memory that responses hold until they are sent: since when (loop time) none
        has got any. Else 0."""
        ...

    def waiting_since(self) -> float:
        """If requests wait for such memory: since when the first of them has. Else 0."""
        ...

    async def answer(self, request: Request, peer: Peer, received_at: float) -> Response | None:
        """Response header and body, or None where the protocol has none. Raises Malformed for a body
        that cannot be read, and CloseConnection. Unless it may park, a request ends by itself within the
        longest request timeout."""
        ...

    def start(
        self, request: Request, peer: Peer, received_at: float, completion: Completion[Buffers | None]
    ) -> Cancellable | None:
        """The same for a pipelined or inline request, without waiting: it is accepted when this returns. The
        completion is called once, perhaps before that, and then there may be nothing to cancel."""
        ...


class PipelineOwner(Protocol):
    """The connection, as far as its pipeline knows it."""

    def update_flow_control(self) -> None:
        """Requests were started or completed."""
        ...

    def fail_request(self, request: Request, error: Exception) -> None:
        """There will be no response to this request."""
        ...


class PipelinedRequest:
    """A request under way that has no task: to its handler the completion, to its connection like a task."""

    __slots__ = ("_pipeline", "_request", "call")

    def __init__(self, pipeline: "RequestPipeline", request: Request) -> None:
        self._pipeline = pipeline
        self._request = request
        self.call: Cancellable | None = None

    def done(self) -> bool:
        return self not in self._pipeline.running

    def set_result(self, buffers: Buffers | None, /) -> None:
        pipeline = self._pipeline
        try:
            pipeline.send(self._request, buffers)
        except Exception as error:
            pipeline.owner.fail_request(self._request, error)
        pipeline.finished(self)

    def set_exception(self, error: Exception, /) -> None:
        self._pipeline.owner.fail_request(self._request, error)
        self._pipeline.finished(self)

    def cancel(self) -> None:
        if self.call is not None:
            self.call.cancel()
        # In a later iteration, as of a task.
        asyncio.get_running_loop().call_soon(self._pipeline.finished, self)


class _NoOwner:
    """In the place of a lost connection, when its last request is done."""

    def update_flow_control(self) -> None:
        """Nothing is read any more."""

    def fail_request(self, request: Request, error: Exception) -> None:
        """Nothing is left to close."""


_NO_OWNER: Final = _NoOwner()


class RequestPipeline:
    """Starts the requests of one connection, and sends their responses."""

    __slots__ = (
        "_backlog",
        "_free_at",
        "_is_starting",
        "_loop",
        "_muted_until",
        "_outbound",
        "_peer",
        "_router",
        "_running_is_pipelined",
        "_under_way",
        "owner",
        "rules",
        "running",
        "unmute_timer",
        "worked_at",
    )

    def __init__(
        self,
        owner: PipelineOwner,
        router: Router,
        rules: Connection,
        outbound: Outbound,
        under_way: dict[asyncio.Task[None] | PipelinedRequest, None],
    ) -> None:
        """`under_way` has the requests of all connections, lost ones included."""
        self.owner: PipelineOwner = owner
        self.rules = rules
        self._router = router
        self._outbound = outbound
        self._under_way = under_way
        self._loop = asyncio.get_running_loop()
        self._peer: Peer
        self._backlog: deque[tuple[Request, float]] = deque()
        self.running: dict[asyncio.Task[None] | PipelinedRequest, float] = {}
        """Requests under way, and when each came; one that may park as if it were still to come."""
        self._running_is_pipelined = True
        self._is_starting = False
        self._free_at = 0.0
        """When the last request was done that others may have waited for."""
        self.worked_at = self._loop.time()
        """When a request last came whole, or the last response was all on its way."""
        self._muted_until = 0.0
        self.unmute_timer: asyncio.TimerHandle | None = None
        """While the connection is muted."""

    def connect(self, peer: Peer) -> None:
        self._peer = peer

    def disconnect(self) -> None:
        """The connection is lost: cancel its requests, but start the Produce requests that still wait."""
        if self.unmute_timer is not None:
            self.unmute_timer.cancel()
            self.unmute_timer = None
        if not self._running_is_pipelined:
            for running in self.running:
                running.cancel()
        self._is_starting = True
        while self._backlog:
            request, _ = self._backlog.popleft()
            if self._router.is_pipelined(request.header.api_key):
                self._start(request, self._loop.time())
        self._is_starting = False

    def detach(self) -> None:
        """Drop the lost connection: a cycle would keep its memory until a garbage collection."""
        self.owner = _NO_OWNER

    @property
    def is_idle(self) -> bool:
        """Whether the client, and not the gateway, is the one to do something next."""
        return not self.running and not self._backlog

    def oldest_started_at(self) -> float | None:
        return next(iter(self.running.values()), None)

    def accept(self, frames: Sequence[memoryview], now: float) -> None:
        """Start the requests in these frames as soon as their order allows. Raises CloseConnection for the
        first that breaks a rule, when those before it have started."""
        self.worked_at = now
        try:
            for frame in frames:
                self._backlog.append((self.rules.received(frame), now))
        finally:
            self.start_ready()

    def clear(self) -> None:
        """No request that still waits is started."""
        self._backlog.clear()

    def cancel(self) -> None:
        """Cancel the requests under way too."""
        self._backlog.clear()
        for running in self.running:
            running.cancel()

    def mute(self, seconds: float) -> None:
        """Start no request for that long. The response that says so is still sent (KIP-219)."""
        until = self._loop.time() + seconds
        if until > self._muted_until:
            self._muted_until = until
            if self.unmute_timer is not None:
                self.unmute_timer.cancel()
            self.unmute_timer = self._loop.call_at(until, self.end_mute)

    def end_mute(self) -> None:
        if self.unmute_timer is not None:
            self.unmute_timer.cancel()
            self.unmute_timer = None
            self._muted_until = self._loop.time()
            self._go_on()

    def start_ready(self) -> None:
        """Start the requests that need not wait for earlier ones."""
        if self._is_starting:
            return  # a request was done before it was started; the loop below goes on with the next
        self._is_starting = True
        backlog, router, outbound = self._backlog, self._router, self._outbound
        left = MAX_AT_ONCE
        while backlog and not outbound.is_paused and self.unmute_timer is None:
            request, received_at = backlog[0]
            # As for Kafka, which takes a request from its socket only then.
            received_at = max(received_at, self._free_at, self._muted_until)
            is_pipelined = router.is_pipelined(request.header.api_key)
            goes_on = is_pipelined and self._running_is_pipelined
            if self.running and (not goes_on or self._is_one_by_one):
                break
            is_inline = not is_pipelined and router.is_inline(request.header.api_key)
            if is_inline and not left:
                self._loop.call_soon(self._go_on)
                break
            left -= is_inline
            backlog.popleft()
            self._running_is_pipelined = is_pipelined
            if is_pipelined or is_inline:
                self._start(request, received_at)
            else:
                self._start_task(request, received_at)
        self._is_starting = False

    def send(self, request: Request, buffers: Buffers | None) -> None:
        """Send a response, and later ones that waited for it; or keep it until the earlier ones are sent."""
        released = self.rules.answered(request.slot, buffers)
        outbound = self._outbound
        if not released or outbound.transport.is_closing():
            return
        if len(self.running) == 1 or not self._running_is_pipelined:
            outbound.send(released)
        elif outbound.join(released):
            # One draft often takes all that are under way: others are ready in this iteration.
            self._loop.call_soon(self._send_joined)

    def finished(self, request: asyncio.Task[None] | PipelinedRequest) -> None:
        """This request is not under way any more."""
        self.running.pop(request, None)
        self._under_way.pop(request, None)
        if self._outbound.on_sent:
            self._outbound.release_sent()
        self.worked_at = self._loop.time()
        if not self.running:
            self._free_at = self.worked_at
        if self._backlog:
            self.start_ready()
        if not self._is_starting and not self._outbound.joined_bytes:
            # Else it is done when all are started, or sent.
            self.owner.update_flow_control()

    @property
    def _is_one_by_one(self) -> bool:
        return self._muted_until > 0 and self._loop.time() < self._muted_until + ONE_BY_ONE_SECONDS

    def _send_joined(self) -> None:
        self._outbound.flush()
        self.owner.update_flow_control()

    def _go_on(self) -> None:
        self.start_ready()
        self.owner.update_flow_control()

    def _start(self, request: Request, received_at: float) -> None:
        pipelined = PipelinedRequest(self, request)
        self.running[pipelined] = received_at
        self._under_way[pipelined] = None
        try:
            pipelined.call = self._router.start(request, self._peer, received_at, pipelined)
        except Exception as error:
            pipelined.set_exception(error)

    def _start_task(self, request: Request, received_at: float) -> None:
        task = self._loop.create_task(self._answer(request, received_at))
        may_park = self._router.may_park(request.header.api_key)
        self.running[task] = math.inf if may_park else received_at
        self._under_way[task] = None
        task.add_done_callback(self.finished)

    async def _answer(self, request: Request, received_at: float) -> None:
        try:
            response = await self._router.answer(request, self._peer, received_at)
            if response is None:
                self.send(request, None)
                return
            if response.on_sent is not None:
                self._outbound.hold(response.on_sent, self._loop.time())
            self.send(request, response.buffers)
        except Exception as error:
            self.owner.fail_request(request, error)
