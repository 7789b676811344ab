"""Listens, closes connections that are overdue, and drains them at the end."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from gateway.addresses import Address, Binding, Listener
from gateway.limit_settings import Limits
from gateway.network.acceptor import Acceptor, ListenFailed, raise_file_limit, warn_of_plaintext
from gateway.network.connection import FLUSH_SECONDS, ClientConnection
from gateway.network.connection_limits import Admitted, ConnectionLimiter, Rejected, Rules
from gateway.network.links import Accepted, Links, Listening, TlsOptions
from gateway.network.pipeline import Router
from gateway.network.pool import PATIENCE_SECONDS, STILL_SECONDS, Budget, ConnectionPool
from gateway.network.sockets import Sockets
from gateway.security.principals import principal_of
from gateway.security.tls import Certificates, refusal
from gateway.telemetry.logs import QuietLog
from gateway.telemetry.metrics import Metrics

log = structlog.get_logger()

QUIET_SECONDS: Final = 10.0
"""Without bytes for this long, a connection gives back the memory of busier times."""
STALL_SECONDS: Final = 60.0
"""A frame may stay unfinished without a new byte for this long."""
REQUEST_GRACE_SECONDS: Final = 60.0
"""A request still under way this long after its longest timeout is cancelled with its connection."""
SLOWEST_BYTES_A_SECOND: Final = 16 * 1024
"""A large frame or response may take longer than the idle time if it moves at least this fast."""
WAIT_SECONDS: Final = 0.5
"""After a fetch has waited this long for memory, clients must be seen to read what others wait for."""
TLS_SHUTDOWN_SECONDS: Final = 10.0
"""How long a closed TLS connection waits for its client to say that it has closed too."""


class Server:
    """Listeners of a gateway with all their connections: those of its clients, or the internal ones."""

    def __init__(  # noqa: PLR0913 - what a server is made of
        self,
        limits: Limits,
        router: Router,
        metrics: Metrics,
        certificates: Certificates | None = None,
        quota_wait_ms: Callable[[str], int] = lambda _: 0,
        links: Links | None = None,
        refusal_of: Callable[[str, str], str] | None = None,
    ) -> None:
        """`certificates` is for bindings of TLS, and may be renewed at any time. `quota_wait_ms` counts a
        connection of an address against its quota. Above 0 the connection is over it, and is closed after
        that time. `links` are sockets by default. `refusal_of`: of internal
        listeners, see `ConnectionPool`; their connections are not counted as those of clients."""
        self._limits = limits
        self._links = links or Sockets()
        self._metrics = metrics
        self._pool: ConnectionPool[ClientConnection] = ConnectionPool(
            limits,
            router,
            Budget(limits.buffer_bytes, limits.total_requests_in_flight),
            QuietLog(keyed_by=("kind", "speaks")),
            self._count_closed,
            principal_of,
        )
        if refusal_of is not None:
            self._pool.refusal_of = refusal_of
        self._limiter = ConnectionLimiter(_rules(limits))
        self._certificates = certificates
        self._quota_wait_ms = quota_wait_ms
        self._acceptors: list[Acceptor] = []
        self._openings: dict[asyncio.Task[None], None] = {}
        """Connections that wait to be served, or are in their TLS handshake."""
        self._watch: asyncio.Task[None] | None = None
        self._short_since = 0.0
        """Since when memory has been short, or 0."""
        self._quiet = QuietLog(keyed_by=("reason", "why"))
        self.bound: list[Address] = []
        """Where each listener really listens, in the order of the bindings."""
        if refusal_of is None:
            metrics.buffer_bytes.set_function(lambda: self._pool.budget.used)
            metrics.connections.set_function(lambda: len(self._pool.connections))

    async def listen(self, bindings: Sequence[Binding]) -> list[Listener]:
        """Open all listeners, or none. Raises ListenFailed."""
        opened: list[tuple[Binding, Listener, Sequence[Listening]]] = []
        try:
            for binding in bindings:
                addresses = await self._links.listen(binding.bind, "--listen")
                bound = Address(binding.bind.host, addresses[0].bound.port)
                self.bound.append(bound)
                advertised = binding.advertised
                listener = Listener(binding.name, advertised.host, advertised.port or bound.port)
                opened.append((binding, listener, addresses))
        except ListenFailed:
            for _, _, addresses in opened:
                for listening in addresses:
                    listening.close()
            raise
        raise_file_limit(self._limits.connections)
        for binding, listener, addresses in opened:
            if not binding.is_tls:
                hosts = [listening.bound.host for listening in addresses]
                warn_of_plaintext(f"{binding.name}://{binding.bind}", hosts, "use SSL://, or loopback")
            self.serve(listener, addresses, is_tls=binding.is_tls)
        return [listener for _, listener, _ in opened]

    def serve(self, listener: Listener, addresses: Sequence[Listening], *, is_tls: bool) -> None:
        """Accept the connections of a listener that is open."""
        self._begin_watch()
        for listening in addresses:
            admit = partial(self._admit, is_tls, listener)
            self._acceptors.append(Acceptor(listening, self._limiter, self._quiet, admit))

    def adopt(self, listener: Listener, accepted: Accepted) -> None:
        """Serve a connection that no listener has accepted: one end of a pair, whose other is a child's."""
        self._begin_watch()
        self._admit(False, listener, accepted, "")

    def _begin_watch(self) -> None:
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_connections())

    @property
    def has_clients(self) -> bool:
        """Whether a client is connected."""
        return bool(self._pool.connections)

    async def close(self) -> None:
        """Stop listening, answer what is under way for at most `limits.drain_ms`, then abort the rest."""
        pool = self._pool
        pool.is_draining = True
        for acceptor in self._acceptors:
            acceptor.close()
        for opening in self._openings:
            opening.cancel()
        for connection in list(pool.connections.values()):
            connection.finish()
        pool.note_gone()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain_ms / 1000):
                await pool.emptied.wait()
        for connection in list(pool.connections.values()):
            connection.abort("drain_deadline")
        for request in list(pool.under_way):
            request.cancel()
        tasks = [request for request in pool.under_way if isinstance(request, asyncio.Task)]
        await asyncio.gather(*tasks, *self._openings, return_exceptions=True)
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch

    def _count_closed(self, reason: str) -> None:
        self._metrics.connections_refused.labels(reason).inc()

    def _admit(self, is_tls: bool, listener: Listener, accepted: Accepted, host: str) -> None:
        verdict = self._limiter.admit(host, asyncio.get_running_loop().time())
        if isinstance(verdict, Rejected):
            self._reject(verdict.reason, host)
            accepted.close()
            return
        connection = ClientConnection(self._pool, listener, partial(self._limiter.release, verdict.address))
        wait_ms = self._quota_wait_ms(host)
        if wait_ms:
            self._metrics.throttled("connection_creation_rate", wait_ms / 1000)
            self._reject("address_quota", host)
            opening = asyncio.create_task(asyncio.sleep(wait_ms / 1000))
        else:
            opening = asyncio.create_task(self._open(is_tls, accepted, connection, verdict))
        self._openings[opening] = None
        opening.add_done_callback(partial(self._opened, accepted, connection, verdict))

    async def _open(
        self, is_tls: bool, accepted: Accepted, connection: ClientConnection, admitted: Admitted
    ) -> None:
        """Serve an accepted connection."""
        if admitted.wait_s:
            await asyncio.sleep(admitted.wait_s)
        try:
            await accepted.serve(connection, self._tls_options() if is_tls else None)
        except OSError as error:
            self._reject("tls" if is_tls else "socket", admitted.address, why=refusal(error))

    def _tls_options(self) -> TlsOptions:
        assert self._certificates is not None, "a TLS listener without certificates"
        handshake_s = self._limits.tls_handshake_ms / 1000
        return TlsOptions(self._certificates.context, handshake_s, TLS_SHUTDOWN_SECONDS)

    def _opened(
        self,
        accepted: Accepted,
        connection: ClientConnection,
        admitted: Admitted,
        opening: asyncio.Task[None],
    ) -> None:
        """Release the admission of what became no connection; a connection does so at its end."""
        self._openings.pop(opening, None)
        if not connection.is_made:
            self._limiter.release(admitted.address)
            accepted.close()
        if not opening.cancelled() and (error := opening.exception()) is not None:
            log.error("connection.not_opened", exc_info=error)

    def _reject(self, reason: str, host: str, why: str = "") -> None:
        self._count_closed(reason)
        self._quiet.info("connection.turned_away", reason=reason, peer=host, why=why)

    async def _watch_connections(self) -> None:
        interval = min(0.5, self._limits.idle_ms / 4000)
        quiescent_s = min(QUIET_SECONDS, self._limits.idle_ms / 1000)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval)
            now = loop.time()
            for connection in list(self._pool.connections.values()):
                if connection.is_quiescent and now - connection.worked_at < quiescent_s:
                    continue
                connection.check_unsent(now)
                reason = overdue(connection, self._limits, now)
                if reason is not None:
                    connection.abort(reason)
                elif now - connection.active_at >= QUIET_SECONDS:
                    connection.release_memory()
            self._shed(now)
            self._limiter.forget_idle(now)

    def _shed(self, now: float) -> None:
        """When too much has been held for a while, free memory for requests that wait for it."""
        router = self._pool.router
        if _has_lasted(router.starved_since(), PATIENCE_SECONDS, now):
            self._pool.shed_unread(
                lambda connection: now - connection.held_since >= PATIENCE_SECONDS,
                lambda: not router.starved_since(),
            )
        if _has_lasted(router.waiting_since(), WAIT_SECONDS, now):
            self._pool.shed_unread(
                lambda connection: now - connection.moved_at >= STILL_SECONDS,
                lambda: not _has_lasted(router.waiting_since(), WAIT_SECONDS, now),
            )
        budget = self._pool.budget
        if budget.used < budget.limit:
            self._short_since = 0.0
        elif not self._short_since:
            self._short_since = now
        elif now - self._short_since >= PATIENCE_SECONDS:
            self._pool.shed(PATIENCE_SECONDS, budget.limit // 2)


def _has_lasted(since: float, seconds: float, now: float) -> bool:
    """Whether something has lasted this long; `since` is 0 if it is not so."""
    return bool(since) and now - since >= seconds


def _rules(limits: Limits) -> Rules:
    return Rules(
        connections=limits.connections,
        address_connections=limits.address_connections,
        rate=limits.connection_rate,
        address_rate=limits.address_connection_rate,
    )


def overdue(connection: ClientConnection, limits: Limits, now: float) -> str | None:
    """Why a connection must go, or None."""
    idle_s = limits.idle_ms / 1000
    if connection.unsent_since:
        if now - connection.unsent_since >= idle_s + connection.unsent_bytes / SLOWEST_BYTES_A_SECOND:
            return "unread"
    elif connection.is_idle and not connection.frame_since and now - connection.worked_at >= idle_s:
        return "idle"
    if connection.is_stalled:
        patience_s = idle_s + connection.held_bytes / SLOWEST_BYTES_A_SECOND
        if now - connection.active_at >= STALL_SECONDS or now - connection.frame_since >= patience_s:
            return "stalled"
    started_at = connection.oldest_started_at()
    longest_s = limits.request_timeout_ms / 1000 + REQUEST_GRACE_SECONDS
    if started_at is not None and now - started_at >= longest_s:
        return "request_stuck"
    if connection.closing_at and connection.is_idle and now - connection.closing_at >= FLUSH_SECONDS:
        return "unread"
    return None
