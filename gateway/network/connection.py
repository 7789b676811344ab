"""One client connection over asyncio: the sans-I/O rules of `gateway.wire` with a socket under them.

Push-back. Reading pauses while this connection has too many requests or bytes unanswered, while its client
does not read responses, and, between frames, while all connections together hold too much. The rest of a
frame is still read, unless it has merely begun, since only whole frames can be processed. A connection of
small requests is still read while it holds less than its share: large requests of other clients must not
delay it. Memory is short when all connections together hold too much for longer than `PATIENCE_SECONDS`, or
hold a quarter more than that. Then the connections that hold most of it without progress are closed: those
with a frame that does not end, perhaps because they are muted, or with a response that the client does not
read (`gateway.network.pool`).
The order of requests is in `gateway.network.pipeline`, what is sent in `gateway.network.outbound`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import structlog

from gateway.addresses import Listener
from gateway.network.outbound import Outbound
from gateway.network.pipeline import Peer, RequestPipeline
from gateway.network.pool import ConnectionPool
from gateway.wire.connection import CloseConnection, Connection, Request
from gateway.wire.errors import Malformed
from gateway.wire.framing import START_BYTES, FrameAssembler, FrameRefused

log = structlog.get_logger()

FLUSH_SECONDS: Final = 30.0
"""How long a closing connection may take to send its responses."""
REFUSED_SECONDS: Final = 2.0
"""For the request by which a client with a wrong certificate learns that it is wrong."""


class ClientConnection(asyncio.BufferedProtocol):
    """A socket's end in the gateway."""

    def __init__(
        self,
        pool: "ConnectionPool[ClientConnection]",
        listener: Listener,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        limits = pool.limits
        self._on_lost = on_lost
        self._pool = pool
        self._listener = listener
        self._assembler = FrameAssembler(limits.frame_bytes)
        self._rules = Connection(pool.router.served, limits.requests_in_flight, limits.connection_bytes)
        self._outbound = Outbound()
        self._pipeline = RequestPipeline(self, pool.router, self._rules, self._outbound, pool.under_way)
        self._is_paused = False
        self.is_made = False
        """Whether there was a transport (over TLS: after the handshake); if so `on_lost` will be called."""
        self.is_closing = False
        """No further request is accepted."""
        self._is_lost = self._is_aborted = False
        self._charged = self._charged_requests = 0
        self._loop = asyncio.get_running_loop()
        self.active_at = self._loop.time()
        """When bytes last came, or went after they could not."""
        self.closing_at = 0.0
        self.frame_since = 0.0
        """When the frame that is unfinished now began, or 0."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pool = self._pool
        # uvloop's transports are not asyncio's class, only of its shape.
        self._outbound.connect(cast(asyncio.Transport, transport), pool.limits.send_bytes)
        self.is_made = True
        pool.last_id += 1
        peername = transport.get_extra_info("peername")
        host = str(peername[0]) if peername else ""
        principal = pool.principal_of(transport.get_extra_info("peercert"))
        # By its number: were the connection held by what it holds, its memory would wait for the collector.
        mute = partial(pool.mute, pool.last_id)
        is_lost = partial(pool.is_lost, pool.last_id)
        self._peer = Peer(pool.last_id, self._listener, host, principal, mute, is_lost)
        self._pipeline.connect(self._peer)
        pool.connections[self._peer.connection_id] = self
        if pool.is_draining:
            self.abort("draining")
            return
        refusal = pool.refusal_of(self._listener.name, principal)
        if refusal:
            # A request may get that as its response. Whatever the client does, it does not stay.
            self._report_refused("principal", refusal)
            self._loop.call_later(REFUSED_SECONDS, self.finish)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = self._is_lost = True
        self._pool.connections.pop(self._peer.connection_id, None)
        self._pool.budget.waiting.pop(self.update_flow_control, None)
        self._pipeline.disconnect()
        self._outbound.disconnect()
        self._charge()
        self._on_lost()
        self._update_closing()

    def get_buffer(self, sizehint: int) -> memoryview:
        growth = self._assembler.next_growth
        if growth:
            self._pool.make_capacity(growth, self)
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
            if self._outbound.on_sent:
                self._outbound.release_sent()
            try:
                self._pipeline.accept(frames, now)
            except CloseConnection as broken:
                self._refuse("request", broken.reason)
        if refused is not None:
            self._refuse("frame", self._explain(refused), refused.speaks)
        if not self._assembler.is_mid_frame:
            self.frame_since = 0.0
        elif frames or not self.frame_since:
            self.frame_since = now
        self.update_flow_control()
        if self._pool.budget.is_far_exceeded:
            self._pool.shed_now()  # before other connections read more in this iteration

    def pause_writing(self) -> None:
        self.active_at = self._loop.time()
        self._outbound.pause(self.active_at)
        self.update_flow_control()

    def resume_writing(self) -> None:
        self.active_at = self._pipeline.worked_at = self._loop.time()
        self._outbound.resume()
        if not self._outbound.is_paused:
            self._pipeline.start_ready()
        self.update_flow_control()

    @property
    def worked_at(self) -> float:
        """When a request last came whole, or the last response was all on its way."""
        return self._pipeline.worked_at

    @property
    def unsent_since(self) -> float:
        """Since when the client has had more to read than it takes, or 0."""
        return self._outbound.unsent_since

    @property
    def unsent_bytes(self) -> int:
        """How much that was at the beginning."""
        return self._outbound.unsent_bytes

    @property
    def unsent_now(self) -> int:
        """Bytes of responses that are still here."""
        return self._outbound.count_unsent()

    @property
    def held_since(self) -> float:
        """Since when responses that are not all sent have held a share of a budget, or 0."""
        return self._outbound.held_since

    @property
    def moved_at(self) -> float:
        """When the client was last seen to read something of these responses."""
        return self._outbound.moved_at

    @property
    def is_idle(self) -> bool:
        """Whether the client, and not the gateway, is the one to do something next."""
        return self._pipeline.is_idle

    @property
    def is_quiescent(self) -> bool:
        """Whether no frame, request or response is unfinished."""
        outbound = self._outbound
        unsent = outbound.unsent_since or outbound.behind_since or outbound.on_sent
        return self.is_idle and not (unsent or self.frame_since or self.closing_at)

    @property
    def held_bytes(self) -> int:
        """Frames, whole or not, responses that wait for an earlier one, and what the client does not read."""
        if self._is_lost or self._is_aborted:
            return self._rules.in_flight_bytes if self._pipeline.running else 0
        unsent = self._outbound.behind_bytes
        return self._rules.in_flight_bytes + self._assembler.held_bytes - START_BYTES + unsent

    @property
    def is_stalled(self) -> bool:
        """Whether the gateway waits for the rest of a frame."""
        return self.frame_since > 0.0 and not self._is_paused

    def waited_for_client(self, now: float) -> float | None:
        """For how long this client has had to end a frame or to read a response; None if it has not."""
        if self._is_aborted:
            return None
        # Nor does the rest of a frame come from a client that is muted.
        is_stalled = self.is_stalled or self._pipeline.unmute_timer is not None
        has_half_frame = self.frame_since > 0.0 and is_stalled
        unsent_since = self._outbound.unsent_since or self._outbound.behind_since
        since = min(self.frame_since if has_half_frame else now, unsent_since or now)
        return now - since if has_half_frame or unsent_since else None

    def oldest_started_at(self) -> float | None:
        return self._pipeline.oldest_started_at()

    def check_unsent(self, now: float) -> None:
        """Release what is sent, and note whether the client has read anything since the last check."""
        self._outbound.release_sent()
        self._outbound.note_movement(now)
        if self._outbound.may_be_behind:
            self.update_flow_control()

    def release_memory(self) -> None:
        """Nothing came for a while: give back the memory of busier times."""
        self._assembler.release_memory()
        self.update_flow_control()

    def mute(self, seconds: float) -> None:
        """Neither read nor start requests for that long, at most for half of what a client may be idle."""
        if not self.is_closing:
            self._pipeline.mute(min(seconds, self._pool.limits.idle_ms / 2000))

    def finish(self) -> None:
        """Accept no more requests, answer those that are here, then close."""
        if not self.is_closing:
            self.is_closing = True
            self.closing_at = self._loop.time()
            self._pipeline.end_mute()
        self.update_flow_control()

    def abort(self, reason: str) -> None:
        """Close now; responses that were not sent are lost."""
        if self._is_aborted:
            return
        self.is_closing = self._is_aborted = True
        self._pool.count_closed(reason)
        log.info(
            "connection.closed", reason=reason, peer=self._peer.host, connection=self._peer.connection_id
        )
        self._pipeline.cancel()
        self._assembler.drop()
        self._outbound.abort()
        self.update_flow_control()

    def fail_request(self, request: Request, error: Exception) -> None:
        """Close, as Kafka does, as there will be no response to this request."""
        header = request.header
        if isinstance(error, Malformed):
            self._fail("request", f"malformed body of API key {header.api_key}: {error}")
        elif isinstance(error, CloseConnection):
            self._fail("request", error.reason)
        else:
            self._pool.events.error(
                "request.failed",
                kind=header.api_key,
                api_key=header.api_key,
                api_version=header.api_version,
                exc_info=error,
            )
            self._fail("failure", f"API key {header.api_key} failed")

    def _fail(self, kind: str, reason: str) -> None:
        # After a request without a response none can be sent any more: responses keep their order.
        self._pipeline.clear()
        self._refuse(kind, reason)

    def _explain(self, refused: FrameRefused) -> str:
        """Why a frame was refused; of a client that came to the wrong listener, what it speaks."""
        if not refused.speaks:
            return refused.reason
        encryption = "plain " if self._outbound.tls_writer is None else ""
        listener = f"listener {self._listener.name} speaks {encryption}Kafka"
        hint = " (security.protocol=SSL?)" if refused.speaks == "TLS" else ""
        return f"a client that speaks {refused.speaks}{hint}, and {listener}"

    def _refuse(self, kind: str, reason: str, speaks: str = "") -> None:
        """Close as Kafka does, after the requests before the refused one are answered."""
        self._report_refused(kind, reason, speaks)
        self.finish()

    def _report_refused(self, kind: str, reason: str, speaks: str = "") -> None:
        self._pool.count_closed(kind)
        self._pool.events.info(
            "connection.refused",
            kind=kind,
            speaks=speaks,
            reason=reason,
            peer=self._peer.host,
            connection=self._peer.connection_id,
        )

    def update_flow_control(self) -> None:
        """Charge the memory that is held, and pause or resume reading by it; close if all is done."""
        self._charge()
        if self.is_closing:
            self._update_closing()
            return
        budget = self._pool.budget
        if not self._is_paused:
            over_budget = budget.is_exceeded and self._must_wait()
            is_held_back = self._outbound.is_paused or self._pipeline.unmute_timer is not None
            if over_budget or is_held_back or self._rules.wants_pause:
                self._pause(over_budget)
        elif self._is_held_back or not self._rules.may_resume:
            return
        elif budget.is_exceeded and self._must_wait():
            budget.waiting[self.update_flow_control] = None
        elif not self._outbound.transport.is_closing():
            self._is_paused = False
            if self.frame_since:
                self.frame_since = self._loop.time()
            self._outbound.transport.resume_reading()

    def _update_closing(self) -> None:
        if self._is_lost:
            if not self._pipeline.running:
                self._pipeline.detach()
            self._pool.note_gone()
            return
        if not self._is_paused:
            self._pause(False)
        if self._pipeline.is_idle and not (self._outbound.is_paused or self._is_aborted):
            self._outbound.close()

    @property
    def _is_held_back(self) -> bool:
        return self._outbound.is_paused or self._pipeline.unmute_timer is not None

    def _must_wait(self) -> bool:
        """Whether this connection has to wait for the exceeded budget. All connections that wait in the
        middle of a frame hold less than half of it, so there is always one that need not wait."""
        share = self._pool.small_share
        is_small = not self._assembler.trusted_bytes and not self._pool.budget.has_too_many_requests
        if self._assembler.is_mid_frame:
            return is_small and share <= self.held_bytes <= 2 * share
        return not is_small or self.held_bytes >= share

    def _charge(self) -> None:
        rules = self._rules
        if self._is_lost or self._is_aborted or self._outbound.may_be_behind:
            self._outbound.note_behind(self._loop.time())
            held = self.held_bytes
        else:
            # The same, as nearly always, with fewer calls: this is done twice a request.
            held = rules.in_flight_bytes + self._assembler.held_bytes - START_BYTES
        requests = len(self._pipeline.running) if self._is_lost else rules.in_flight
        if held == self._charged and requests == self._charged_requests:
            return
        budget = self._pool.budget
        bytes_delta, requests_delta = held - self._charged, requests - self._charged_requests
        self._charged, self._charged_requests = held, requests
        budget.adjust(bytes_delta, requests_delta)
        if bytes_delta > 0 and budget.is_far_exceeded:
            self._pool.shed_soon()

    def _pause(self, over_budget: bool) -> None:
        self._is_paused = True
        if not self._outbound.transport.is_closing():
            self._outbound.transport.pause_reading()
        if over_budget:
            self._pool.budget.waiting[self.update_flow_control] = None
