"""Links: how a gateway listens for clients, and how their connections begin. Sockets are in
`gateway/network/sockets.py`; a simulation brings its own."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.addresses import Address


@dataclass(frozen=True, slots=True)
class TlsOptions:
    context: ssl.SSLContext
    handshake_s: float
    """At most, for the handshake."""
    shutdown_s: float
    """At most, until the client says that it has closed too."""


class Accepted(Protocol):
    """A connection that is not served yet."""

    async def serve(self, protocol: asyncio.BufferedProtocol, tls: TlsOptions | None) -> None:
        """Connect the protocol with a transport, to which the connection belongs from here on. Raises
        OSError if the client is gone or its handshake failed."""
        ...

    def close(self) -> None:
        """Close it, unless it is a transport's."""
        ...


class Listening(Protocol):
    """One address that clients can connect to."""

    @property
    def bound(self) -> Address: ...

    def watch(self, on_waiting: Callable[[], None]) -> None:
        """Call this, on the event loop, as long as connections wait to be accepted."""
        ...

    def unwatch(self) -> None: ...

    def accept(self) -> tuple[Accepted, str]:
        """A connection, and the IP address of its client. Raises BlockingIOError if none waits, another
        OSError if there is no memory or descriptor for it."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class Links(Protocol):
    async def listen(self, address: Address, flag: str) -> Sequence[Listening]:
        """Listen on every address that the host name resolves to. Raises ListenFailed
        (`gateway/network/acceptor.py`), which names the flag."""
        ...
