"""One client connection over asyncio: the sans-I/O rules of `gateway.wire` with a socket under them.

Order. Kafka works on one request of a connection at a time. Here Produce is *pipelined*: it starts while
earlier Produce requests are unanswered, so that one draft takes many of them; every other request starts
when all before it are answered, and nothing starts before it is done. A client so sees the same order as
with Kafka, and at most one answer of unknown size is in the making.

Push-back. Reading pauses while this connection has too many requests or bytes unanswered, while its client
does not read answers, and, between frames, while all connections together hold too much. Half a frame may
go on, unless it has merely begun, since only a whole one can be worked off. A connection of small requests
goes on too while it holds less than its share: others' large ones must not keep it waiting. Memory is short
when all together hold too much for longer than `PATIENCE_SECONDS`, or a quarter more than that: then those
connections are closed whose clients hold most of it without moving, by a frame that does not end, perhaps
because they are muted, or an answer that they do not read.

Muting. A client over a quota is answered at once, and then neither read from nor served for its throttle
time, nor are its requests that are here already. Until some time later its Produce requests are taken one by
one, so that it is stopped by the first that is too much.

Requests under way belong to their connection. One that is pipelined or prompt has no task: it is taken up in
the turn in which it came, and who settles it has the answer sent. Every other request is a task. A lost
connection cancels its requests, except pipelined ones, of which those that waited for their turn are taken
up: what a client has sent with acks=0 before closing is still stored.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, cast

import structlog

from gateway.config import Limits
from gateway.context import Cancellable, Reply
from gateway.fetch.budget import Hold
from gateway.listeners import Listener
from gateway.security.pacing import PacedWriter
from gateway.security.principals import ANONYMOUS, principal_of
from gateway.telemetry.logs import QuietLog
from gateway.telemetry.metrics import Metrics
from gateway.wire.connection import CloseConnection, Connection, Request
from gateway.wire.errors import Malformed
from gateway.wire.framing import START_BYTES, FrameAssembler, FrameRefused
from ledger.types import Buffer

log = structlog.get_logger()

FLUSH_SECONDS: Final = 30.0
"""How long a closing connection may take to send what it was answered."""
MOST_AT_ONCE: Final = 32
"""Prompt requests of a connection that are taken up in one turn: others wait meanwhile."""
WARY_SECONDS: Final = 30.0
"""How long after it was muted a connection has its Produce requests taken one by one."""
PATIENCE_SECONDS: Final = 2.0
"""How long a client may leave a frame unfinished or an answer unread while memory is short."""
STILL_SECONDS: Final = 1.0
"""How long a client may read nothing of an answer for which others wait."""


class Router(Protocol):
    """Answers requests; `gateway.router.RequestRouter` in a gateway."""

    @property
    def served(self) -> dict[int, tuple[int, int]]: ...

    def is_pipelined(self, api_key: int) -> bool: ...

    def is_prompt(self, api_key: int) -> bool:
        """Whether such a request is given to `start` too, although it is not pipelined."""
        ...

    def is_patient(self, api_key: int) -> bool:
        """Whether such a request waits for other clients, within deadlines of its own."""
        ...

    def starved_since(self) -> float:
        """If requests wait for memory that answers hold until they are sent: since when (loop time) none
        has got any. Else 0."""
        ...

    def waiting_since(self) -> float:
        """If requests wait for such memory: since when the first of them has. Else 0."""
        ...

    async def answer(
        self, request: Request, peer: "Peer", received_at: float, hold: Hold
    ) -> Sequence[Buffer] | None:
        """Response header and body, or None where the protocol has none. `hold` is given, when the answer
        is ready, what is to be called when it is sent or its client gone. Raises Malformed for a body
        that cannot be read, and CloseConnection. A request that is not patient ends by itself within the
        longest request timeout."""
        ...

    def start(self, request: Request, peer: "Peer", received_at: float, reply: Reply) -> Cancellable | None:
        """The same for a pipelined or prompt request, without waiting: it is taken up when this returns. The
        reply is told once, perhaps before that, and then there may be nothing to cancel."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a request: the connection's number, the listener it came in by, and the other end."""

    connection_id: int
    listener: Listener
    host: str
    principal: str = ANONYMOUS
    mute: Callable[[float], None] = lambda _: None
    """Take up no further request of the connection for so many seconds."""
    is_lost: Callable[[], bool] = lambda: False


@dataclass(slots=True, eq=False)
class Budget:
    """Bytes and requests that all connections together hold; who waits is woken at half the limits."""

    limit: int
    """Bytes."""
    request_limit: int
    used: int = 0
    requests: int = 0
    waiting: dict[Callable[[], None], None] = field(default_factory=dict)

    @property
    def is_far_exceeded(self) -> bool:
        """So far that connections are closed at once. With what the next frame grows by, and what the
        allocator does not give back, memory stays below one and a half times the limit."""
        return 4 * self.used >= 5 * self.limit

    @property
    def is_exceeded(self) -> bool:
        return self.used >= self.limit or self.requests >= self.request_limit

    @property
    def has_too_many_requests(self) -> bool:
        return self.requests >= self.request_limit

    def adjust(self, bytes_delta: int, requests_delta: int) -> None:
        self.used += bytes_delta
        self.requests += requests_delta
        if self.waiting and 2 * self.used <= self.limit and 2 * self.requests <= self.request_limit:
            waiting, self.waiting = self.waiting, {}
            for wake in waiting:
                wake()


@dataclass(slots=True, eq=False)
class ConnectionPool:
    """What the connections of a server share."""

    limits: Limits
    router: Router
    metrics: Metrics
    budget: Budget
    connections: dict[int, "ClientConnection"] = field(default_factory=dict)
    under_way: "set[asyncio.Task[None] | _Pipelined]" = field(default_factory=set)
    """Requests of open and of lost connections."""
    quiet: QuietLog = field(default_factory=lambda: QuietLog(keyed_by=("kind", "speaks")))
    last_id: int = 0
    is_draining: bool = False
    emptied: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last connection and request of a draining server have gone."""
    _is_shedding: bool = False

    @property
    def small_share(self) -> int:
        """Bytes that a connection may hold while the budget is exceeded; twice that of all together is half
        the budget. 0 if that would be less than a frame that has just begun."""
        share = self.budget.limit // (4 * self.limits.connections)
        return share if share >= 2 * START_BYTES else 0

    def note_gone(self) -> None:
        if self.is_draining and not self.under_way and not self.connections:
            self.emptied.set()

    def is_lost(self, connection_id: int) -> bool:
        return connection_id not in self.connections

    def mute(self, connection_id: int, seconds: float) -> None:
        connection = self.connections.get(connection_id)
        if connection is not None:
            connection.mute(seconds)

    def make_room(self, size: int, but: "ClientConnection") -> None:
        """So many bytes are about to be claimed by this connection, which is in the middle of a read."""
        budget = self.budget
        if 4 * (budget.used + size) >= 5 * budget.limit:
            self.shed(0.0, budget.limit + budget.limit // 8 - size, but)

    def shed(self, patience_s: float, limit: int, but: "ClientConnection | None" = None) -> None:
        """Close connections whose clients hold memory without moving, most and longest first, until no more
        than `limit` bytes are held. Who has kept the gateway waiting for less than `patience_s` stays."""
        now = asyncio.get_running_loop().time()
        slow = [
            (waited * connection.held_bytes, connection)
            for connection in self.connections.values()
            if connection is not but
            and (waited := connection.waited_for_client(now)) is not None
            and waited >= patience_s
        ]
        for _, connection in sorted(slow, key=lambda pair: pair[0], reverse=True):
            if self.budget.used <= limit:
                return
            connection.abort("memory")

    def shed_unread(
        self, is_unread: Callable[["ClientConnection"], bool], is_enough: Callable[[], bool]
    ) -> None:
        """Close connections that keep others waiting with answers which their clients do not read, most and
        longest first, until it is enough."""
        now = asyncio.get_running_loop().time()
        unread = [
            ((now - connection.held_since) * connection.unsent_now, connection)
            for connection in self.connections.values()
            if connection.held_since and is_unread(connection)
        ]
        for _, connection in sorted(unread, key=lambda pair: pair[0], reverse=True):
            if is_enough():
                return
            connection.abort("memory")

    def shed_soon(self) -> None:
        """Far too much is held. Not at once: the caller may be in the middle of a write."""
        if not self._is_shedding:
            self._is_shedding = True
            asyncio.get_running_loop().call_soon(self.shed_now)

    def shed_now(self) -> None:
        """Far too much is held."""
        self._is_shedding = False
        self.shed(0.0, self.budget.limit + self.budget.limit // 8)


class _Pipelined:
    """A request under way that has no task: to its handler the reply, to its connection like a task."""

    __slots__ = ("_connection", "_request", "call")

    def __init__(self, connection: "ClientConnection", request: Request) -> None:
        self._connection = connection
        self._request = request
        self.call: Cancellable | None = None

    def answer(self, buffers: Sequence[Buffer] | None) -> None:
        try:
            self._connection.send(self._request, buffers)
        except Exception as error:
            self._connection.give_up(self._request, error)
        self._connection.done(self)

    def fail(self, error: Exception) -> None:
        self._connection.give_up(self._request, error)
        self._connection.done(self)

    def cancel(self) -> None:
        if self.call is not None:
            self.call.cancel()
        # In a later turn, as of a task.
        asyncio.get_running_loop().call_soon(self._connection.done, self)


class _Gone(asyncio.Transport):
    """Stands for the transport of a lost connection. That of TLS holds on to its protocol: a connection that
    kept it would wait for a collection of garbage, which for what has grown old hardly ever comes."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        """There is nothing left to close."""

    def abort(self) -> None:
        """The same."""

    def get_write_buffer_size(self) -> int:
        return 0


_GONE: Final = _Gone()


class ClientConnection(asyncio.BufferedProtocol):
    """A socket's end in the gateway. Refer to the module's text for order and push-back."""

    def __init__(
        self, pool: ConnectionPool, listener: Listener, on_lost: Callable[[], None] | None = None
    ) -> None:
        limits = pool.limits
        self._on_lost = on_lost
        self._pool = pool
        self._listener = listener
        self._assembler = FrameAssembler(limits.frame_bytes)
        self._rules = Connection(pool.router.served, limits.requests_in_flight, limits.connection_bytes)
        self._backlog: deque[tuple[Request, float]] = deque()
        self._running: dict[asyncio.Task[None] | _Pipelined, float] = {}
        """Requests under way, and when each came; a patient one as if it were still to come."""
        self._running_is_pipelined = True
        self._is_starting = False
        self._free_at = 0.0
        """When the last request was done that others may have waited for."""
        self._muted_until = 0.0
        self._unmute: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_write_paused = False
        self.is_made = False
        """Whether there was a transport (over TLS: after the handshake); if so `on_lost` will be called."""
        self.is_closing = False
        """No further request is taken."""
        self._is_lost = self._is_aborted = False
        self._charged = self._charged_requests = 0
        self._writer: PacedWriter | None = None
        """Over TLS only."""
        self._loop = asyncio.get_running_loop()
        self.active_at = self._loop.time()
        """When bytes last came, or went after they could not."""
        self.worked_at = self.active_at
        """When a request last came whole, or the last answer was all on its way."""
        self.closing_at = 0.0
        self.frame_since = 0.0
        """When the frame that is unfinished now began, or 0."""
        self.unsent_since = 0.0
        """Since when the client has had more to read than it takes, or 0."""
        self.unsent_bytes = 0
        """How much that was at the beginning."""
        self.held_since = 0.0
        """Since when answers that are not all sent have held a share of a budget, or 0."""
        self.moved_at = 0.0
        """When the client was last seen to read something of these answers."""
        self._unsent_before = 0
        self._held: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pool = self._pool
        # uvloop's transports are not asyncio's class, only of its shape.
        self._transport: asyncio.Transport = cast(asyncio.Transport, transport)
        self.is_made = True
        pool.last_id += 1
        peername = transport.get_extra_info("peername")
        host = str(peername[0]) if peername else ""
        principal = principal_of(transport.get_extra_info("peercert"))
        # By its number: were the connection held by what it holds, its memory would wait for the collector.
        mute = partial(pool.mute, pool.last_id)
        is_lost = partial(pool.is_lost, pool.last_id)
        self._peer = Peer(pool.last_id, self._listener, host, principal, mute, is_lost)
        pool.connections[self._peer.connection_id] = self
        if transport.get_extra_info("ssl_object") is None:
            self._transport.set_write_buffer_limits(high=pool.limits.send_bytes)
        else:
            self._writer = PacedWriter(self._transport)
        if pool.is_draining:
            self.abort("draining")

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = self._is_lost = True
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
        self._pool.connections.pop(self._peer.connection_id, None)
        self._pool.budget.waiting.pop(self._settle, None)
        if not self._running_is_pipelined:
            for request in self._running:
                request.cancel()
        self._start_last()
        self.release_sent()
        self._transport, self._writer = _GONE, None
        self._charge()
        if self._on_lost is not None:
            self._on_lost()
        self._pool.note_gone()

    def get_buffer(self, sizehint: int) -> memoryview:
        growth = self._assembler.next_growth
        if growth:
            self._pool.make_room(growth, self)
        return self._assembler.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        now = self._loop.time()
        self.active_at = now
        refused: FrameRefused | None = None
        try:
            frames = self._assembler.buffer_updated(nbytes)
        except FrameRefused as refusal:
            frames, refused = refusal.frames, refusal
        if self.is_closing:
            return
        if frames:
            self.worked_at = now
            self.release_sent()
            self._take(frames, now)
        if refused is not None:
            self._refuse("frame", self._why(refused), refused.speaks)
        if not self._assembler.is_mid_frame:
            self.frame_since = 0.0
        elif frames or not self.frame_since:
            self.frame_since = now
        self._settle()
        if self._pool.budget.is_far_exceeded:
            # Before other connections read more in this turn.
            self._pool.shed_now()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self.active_at = self._loop.time()
        if self._writer is not None:
            self._writer.pause()
        if not self.unsent_since:
            self.unsent_since = self.active_at
            self.unsent_bytes = self._count_unsent()
        self._settle()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.active_at = self.worked_at = self._loop.time()
        if self._writer is not None:
            # Which may be too much for the transport again.
            self._writer.resume()
        if not self._is_write_paused:
            self.unsent_since = 0.0
            self.release_sent()
            self._start_ready()
            if self.is_closing and self.is_idle:
                self._transport.close()
        self._settle()

    @property
    def is_idle(self) -> bool:
        """Whether the client, and not the gateway, is the one to do something next."""
        return not self._running and not self._backlog

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is here that is unfinished, neither a frame nor a request nor an answer."""
        held = self._held or self._running or self._backlog
        return not (held or self.frame_since or self.unsent_since or self.closing_at)

    @property
    def held_bytes(self) -> int:
        """Frames, whole or not, answers that wait for an earlier one, and what the client does not read."""
        if self._is_lost or self._is_aborted:
            return self._rules.in_flight_bytes if self._running else 0
        unsent = self._count_unsent() if self._is_write_paused else 0
        return self._rules.in_flight_bytes + self._assembler.held_bytes - START_BYTES + unsent

    @property
    def is_stalled(self) -> bool:
        """Whether the gateway waits for the rest of a frame."""
        return self.frame_since > 0.0 and not self._is_paused

    def waited_for_client(self, now: float) -> float | None:
        """For how long this client has had to end a frame or to read an answer; None if it has not."""
        if self._is_aborted:
            return None
        # Nor does the rest of a frame come from a client that is muted.
        has_half_frame = self.is_stalled or (self.frame_since > 0.0 and self._unmute is not None)
        since = min(self.frame_since if has_half_frame else now, self.unsent_since or now)
        return now - since if has_half_frame or self.unsent_since else None

    @property
    def unsent_now(self) -> int:
        """Bytes of answers that are still here."""
        return self._count_unsent()

    def release_sent(self) -> None:
        """Let go of what answers hold, if they are sent or nobody will read them."""
        if self._held and (self._is_lost or self._is_aborted or not self._count_unsent()):
            held, self._held, self.held_since = self._held, [], 0.0
            for release in held:
                release()

    def look_for_movement(self, now: float) -> None:
        """Whether the client has read anything since the last look."""
        if self._held:
            unsent = self._count_unsent()
            if unsent < self._unsent_before:
                self.moved_at = now
            self._unsent_before = unsent

    def oldest_started_at(self) -> float | None:
        return next(iter(self._running.values()), None)

    def calm(self) -> None:
        """Nothing came for a while: give memory back."""
        self._assembler.settle()
        self._settle()

    def mute(self, seconds: float) -> None:
        """Neither read nor take up requests for so long, at most for half of what a client may be idle.
        The answer that tells of it still goes out (KIP-219)."""
        if self.is_closing:
            return
        until = self._loop.time() + min(seconds, self._pool.limits.idle_ms / 2000)
        if until > self._muted_until:
            self._muted_until = until
            if self._unmute is not None:
                self._unmute.cancel()
            self._unmute = self._loop.call_at(until, self._end_mute)

    def _end_mute(self) -> None:
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
            self._muted_until = self._loop.time()
            self._go_on()

    def finish(self) -> None:
        """Take no more requests, answer those that are here, then close."""
        if not self.is_closing:
            self.is_closing = True
            self.closing_at = self._loop.time()
            self._end_mute()
        self._settle()
        if self.is_idle and not self._is_write_paused:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close now; answers that were not sent are lost."""
        if self._is_aborted:
            return
        self.is_closing = self._is_aborted = True
        self._pool.metrics.connections_refused.labels(reason).inc()
        log.info(
            "connection.closed", reason=reason, peer=self._peer.host, connection=self._peer.connection_id
        )
        self._backlog.clear()
        for request in self._running:
            request.cancel()
        if self._writer is not None:
            self._writer.clear()
        self._assembler.drop()
        self._transport.abort()
        self.release_sent()
        self._settle()

    def _take(self, frames: Sequence[memoryview], now: float) -> None:
        for frame in frames:
            try:
                request = self._rules.received(frame)
            except CloseConnection as refused:
                self._start_ready()
                self._refuse("request", refused.reason)
                return
            self._backlog.append((request, now))
        self._start_ready()

    def send(self, request: Request, answer: Sequence[Buffer] | None) -> None:
        """Send an answer, and those that waited for it, unless it has to wait for an earlier one."""
        buffers = self._rules.answered(request.slot, answer)
        if buffers and not self._transport.is_closing():
            (self._writer or self._transport).writelines(buffers)

    def give_up(self, request: Request, error: Exception) -> None:
        """Close, as Kafka does, as there will be no answer to this request."""
        header = request.header
        if isinstance(error, Malformed):
            self._fail("request", f"malformed body of API key {header.api_key}: {error}")
        elif isinstance(error, CloseConnection):
            self._fail("request", error.reason)
        else:
            self._pool.quiet.error(
                "request.failed",
                kind=header.api_key,
                api_key=header.api_key,
                api_version=header.api_version,
                exc_info=error,
            )
            self._fail("failure", f"API key {header.api_key} failed")

    def _hold(self, release: Callable[[], None]) -> None:
        self._held.append(release)
        self.moved_at = self._loop.time()
        self.held_since = self.held_since or self.moved_at

    def done(self, request: asyncio.Task[None] | _Pipelined) -> None:
        """This request is under way no longer."""
        self._running.pop(request, None)
        self._pool.under_way.discard(request)
        self.release_sent()
        self.worked_at = self._loop.time()
        if not self._running:
            self._free_at = self.worked_at
        if self._backlog:
            self._start_ready()
        if self._is_lost:
            self._charge()
            self._pool.note_gone()
        elif self.is_closing and self.is_idle and not self._is_write_paused:
            self._transport.close()
        elif not self._is_starting:
            # Else whoever starts requests settles when all are started.
            self._settle()

    def _start_ready(self) -> None:
        if self._is_starting:
            return  # a request was done before it was started; the loop below goes on with the next
        self._is_starting = True
        backlog, router = self._backlog, self._pool.router
        left = MOST_AT_ONCE
        while backlog and not self._is_write_paused and self._unmute is None:
            request, received_at = backlog[0]
            # As for Kafka, which takes a request from its socket only then.
            received_at = max(received_at, self._free_at, self._muted_until)
            is_pipelined = router.is_pipelined(request.header.api_key)
            goes_on = is_pipelined and self._running_is_pipelined and not self._was_muted
            if self._running and not goes_on:
                break
            is_prompt = not is_pipelined and router.is_prompt(request.header.api_key)
            if is_prompt and not left:
                self._loop.call_soon(self._go_on)
                break
            left -= is_prompt
            backlog.popleft()
            self._running_is_pipelined = is_pipelined
            if is_pipelined or is_prompt:
                self._start(request, received_at)
            else:
                self._start_task(request, received_at)
        self._is_starting = False

    def _go_on(self) -> None:
        self._start_ready()
        self._settle()

    def _start_last(self) -> None:
        """The client has closed, and its Produce requests wait for nothing any more."""
        self._is_starting = True
        while self._backlog:
            request, _ = self._backlog.popleft()
            if self._pool.router.is_pipelined(request.header.api_key):
                self._start(request, self._loop.time())
        self._is_starting = False

    def _start(self, request: Request, received_at: float) -> None:
        pipelined = _Pipelined(self, request)
        self._running[pipelined] = received_at
        self._pool.under_way.add(pipelined)
        try:
            pipelined.call = self._pool.router.start(request, self._peer, received_at, pipelined)
        except Exception as error:
            pipelined.fail(error)

    def _start_task(self, request: Request, received_at: float) -> None:
        task = self._loop.create_task(self._run(request, received_at))
        is_patient = self._pool.router.is_patient(request.header.api_key)
        self._running[task] = math.inf if is_patient else received_at
        self._pool.under_way.add(task)
        task.add_done_callback(self.done)

    async def _run(self, request: Request, received_at: float) -> None:
        # What the answer holds counts as held by the client only when it is sent: while it is encoded, slice
        # by slice, nothing of it is unsent, and it would be released.
        held: list[Callable[[], None]] = []
        try:
            answer = await self._pool.router.answer(request, self._peer, received_at, held.append)
            while held:
                self._hold(held.pop())
            self.send(request, answer)
        except Exception as error:
            self.give_up(request, error)
        finally:
            # Cancelled, or failed before it was sent.
            for release in held:
                release()

    def _why(self, refused: FrameRefused) -> str:
        """Why a frame was refused; of a client that came to the wrong listener, what it speaks."""
        if not refused.speaks:
            return refused.reason
        listener = f"listener {self._listener.name} speaks {'plain ' if self._writer is None else ''}Kafka"
        hint = " (security.protocol=SSL?)" if refused.speaks == "TLS" else ""
        return f"a client that speaks {refused.speaks}{hint}, and {listener}"

    def _refuse(self, kind: str, reason: str, speaks: str = "") -> None:
        """Close as Kafka does, after the requests before the refused one are answered."""
        self._pool.metrics.connections_refused.labels(kind).inc()
        self._pool.quiet.info(
            "connection.refused",
            kind=kind,
            speaks=speaks,
            reason=reason,
            peer=self._peer.host,
            connection=self._peer.connection_id,
        )
        self.finish()

    def _fail(self, kind: str, reason: str) -> None:
        # Behind a request without an answer none can be sent any more: answers keep their order.
        self._backlog.clear()
        self._refuse(kind, reason)

    def _settle(self) -> None:
        """Charge what is held, and pause or resume reading by it."""
        if self._is_lost:
            return
        self._charge()
        budget = self._pool.budget
        if not self._is_paused:
            over_budget = budget.is_exceeded and self._must_wait()
            if over_budget or self._is_held_back or self._rules.wants_pause:
                self._pause(over_budget)
        elif self._is_held_back or not self._rules.may_resume:
            return
        elif budget.is_exceeded and self._must_wait():
            budget.waiting[self._settle] = None
        elif not self._transport.is_closing():
            self._is_paused = False
            if self.frame_since:
                self.frame_since = self._loop.time()
            self._transport.resume_reading()

    @property
    def _was_muted(self) -> bool:
        return self._muted_until > 0 and self._loop.time() < self._muted_until + WARY_SECONDS

    @property
    def _is_held_back(self) -> bool:
        return self.is_closing or self._is_write_paused or self._unmute is not None

    def _must_wait(self) -> bool:
        """Whether this connection has to wait for the budget, which is exceeded. All who wait in the middle
        of a frame hold less than half of it, so that there is always somebody else to go on."""
        share = self._pool.small_share
        is_small = not self._assembler.trusted_bytes and not self._pool.budget.has_too_many_requests
        if self._assembler.is_mid_frame:
            return is_small and share <= self.held_bytes <= 2 * share
        return not is_small or self.held_bytes >= share

    def _charge(self) -> None:
        held = self.held_bytes
        requests = len(self._running) if self._is_lost else self._rules.in_flight
        if held == self._charged and requests == self._charged_requests:
            return
        budget = self._pool.budget
        bytes_delta, requests_delta = held - self._charged, requests - self._charged_requests
        self._charged, self._charged_requests = held, requests
        budget.adjust(bytes_delta, requests_delta)
        if bytes_delta > 0 and budget.is_far_exceeded:
            self._pool.shed_soon()

    def _count_unsent(self) -> int:
        waiting = self._writer.waiting_bytes if self._writer is not None else 0
        return waiting + self._transport.get_write_buffer_size()

    def _pause(self, over_budget: bool) -> None:
        self._is_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()
        if over_budget:
            self._pool.budget.waiting[self._settle] = None
