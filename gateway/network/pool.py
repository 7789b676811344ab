"""What the connections of a server share: their budget of memory and requests, and which of them are closed
when memory is short (shedding)."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from gateway.limit_settings import Limits
from gateway.network.pipeline import PipelinedRequest, Router
from gateway.wire.framing import START_BYTES

PATIENCE_SECONDS: Final = 2.0
"""How long a client may leave a frame unfinished or a response unread while memory is short."""
STILL_SECONDS: Final = 1.0
"""How long a client may read nothing of a response whose memory other clients wait for."""


class EventLog(Protocol):
    """Logs events; `gateway.telemetry.logs.QuietLog` in a gateway."""

    def info(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


class PooledConnection(Protocol):
    """A connection, as far as the pool knows it."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def held_since(self) -> float: ...

    @property
    def unsent_now(self) -> int: ...

    def waited_for_client(self, now: float) -> float | None: ...

    def mute(self, seconds: float) -> None: ...

    def abort(self, reason: str) -> None: ...


AnyConnection = TypeVar("AnyConnection", bound=PooledConnection)


@dataclass(slots=True, eq=False)
class Budget:
    """Bytes and requests that all connections together hold. Those that wait are woken at half the limits."""

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
class ConnectionPool(Generic[AnyConnection]):
    """What the connections of a server share."""

    limits: Limits
    router: Router
    budget: Budget
    events: EventLog
    count_closed: Callable[[str], None]
    """Counts a connection that is closed or refused, by its reason."""
    principal_of: Callable[[Mapping[str, Any] | None], str]
    """The principal of a peer's TLS certificate, or of None."""
    connections: dict[int, AnyConnection] = field(default_factory=dict)
    under_way: dict[asyncio.Task[None] | PipelinedRequest, None] = field(default_factory=dict)
    """Requests of open and of lost connections."""
    last_id: int = 0
    is_draining: bool = False
    emptied: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last connection and request of a draining server have gone."""
    refusal_of: Callable[[str, str], str] = lambda listener, principal: ""
    """Why a principal may not use a listener, by its name; empty if it may."""
    _is_shedding: bool = False

    @property
    def small_share(self) -> int:
        """Bytes that a connection may hold while the budget is exceeded; twice that of all together is half
        the budget. 0 if that would be less than a frame that has just begun."""
        share = self.budget.limit // (4 * self.limits.connections)
        return share if share >= 2 * START_BYTES else 0

    def note_gone(self) -> None:
        """A connection or a request has ended."""
        if self.is_draining and not self.under_way and not self.connections:
            self.emptied.set()

    def is_lost(self, connection_id: int) -> bool:
        return connection_id not in self.connections

    def mute(self, connection_id: int, seconds: float) -> None:
        connection = self.connections.get(connection_id)
        if connection is not None:
            connection.mute(seconds)

    def make_capacity(self, size: int, but: AnyConnection) -> None:
        """`size` bytes are about to be claimed by this connection, which is in the middle of a read."""
        budget = self.budget
        if 4 * (budget.used + size) >= 5 * budget.limit:
            self.shed(0.0, budget.limit + budget.limit // 8 - size, but)

    def shed(self, patience_s: float, limit: int, but: AnyConnection | None = None) -> None:
        """Close connections whose clients hold memory without moving, those with most bytes times seconds
        first, until no more than `limit` bytes are held. A client that has kept the gateway waiting for less
        than `patience_s` stays."""
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

    def shed_unread(self, is_unread: Callable[[AnyConnection], bool], is_enough: Callable[[], bool]) -> None:
        """Close connections that keep others waiting with responses which their clients do not read, those
        with most bytes times seconds first, until it is enough."""
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
