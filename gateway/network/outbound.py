"""What a connection sends: responses on their way to the client, and what is released when they are sent."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.network.tls_writer import PacedWriter
from ledger.types import Buffer

MAX_JOINED_BYTES: Final = 64 * 1024
"""Responses that wait for others of the same iteration are sent at this size."""
NOTICED_BYTES: Final = 64 * 1024
"""What a client has not read counts from here on, long before reading pauses for it: many connections may
hold as much each."""


class _NotConnected(asyncio.Transport):
    """In the place of the transport of a lost connection. That of TLS holds on to its protocol: a connection
    that kept it would wait for a collection of garbage, which for old objects hardly ever comes."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        """There is nothing left to close."""

    def abort(self) -> None:
        """The same."""

    def get_write_buffer_size(self) -> int:
        return 0


_NOT_CONNECTED: Final = _NotConnected()


class Outbound:
    """The transport of one connection, and the bytes that its client has not read."""

    __slots__ = (
        "_is_aborted",
        "_joined",
        "_unsent_before",
        "behind_since",
        "held_since",
        "is_paused",
        "joined_bytes",
        "moved_at",
        "on_sent",
        "sink",
        "tls_writer",
        "transport",
        "unsent_bytes",
        "unsent_since",
    )

    def __init__(self) -> None:
        self.transport: asyncio.Transport = _NOT_CONNECTED
        self.tls_writer: PacedWriter | None = None
        self.sink: asyncio.Transport | PacedWriter = _NOT_CONNECTED
        """What takes `writelines`: the transport, or over TLS its writer."""
        self.is_paused = False
        """Whether the client has more to read than it takes."""
        self.unsent_since = 0.0
        """Since when that is so, or 0."""
        self.unsent_bytes = 0
        """How much that was at the beginning."""
        self.behind_since = 0.0
        """Since when the client has read nothing of more than NOTICED_BYTES, or 0."""
        self.on_sent: list[Callable[[], None]] = []
        """What is released when all that was written is sent."""
        self.held_since = 0.0
        """Since when there has been anything to release, or 0."""
        self.moved_at = 0.0
        """When the client was last seen to read something meanwhile."""
        self._unsent_before = 0
        self._is_aborted = False
        self._joined: list[Buffer] = []
        self.joined_bytes = 0
        """Of responses that wait for the next, to be sent by one call of the system."""

    def connect(self, transport: asyncio.Transport, send_bytes: int) -> None:
        self.transport = self.sink = transport
        if transport.get_extra_info("ssl_object") is None:
            transport.set_write_buffer_limits(high=send_bytes)
        else:
            self.sink = self.tls_writer = PacedWriter(transport)

    def disconnect(self) -> None:
        """The connection is lost: nothing more is sent."""
        self._forget_joined()
        self.transport = self.sink = _NOT_CONNECTED
        self.tls_writer = None
        self.release_sent()

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        self._is_aborted = True
        self._forget_joined()
        if self.tls_writer is not None:
            self.tls_writer.clear()
        self.transport.abort()
        self.release_sent()

    def close(self) -> None:
        """Close when all that is here is sent."""
        self.flush()
        self.transport.close()

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send responses, and those before them that wait."""
        if self._joined:
            self.join(buffers)
            self.flush()
        else:
            self.sink.writelines(buffers)

    def join(self, buffers: Sequence[Buffer]) -> bool:
        """Send these responses together with the next, or by `flush`: a call of the system for each costs as
        much as a tenth of a request, and wakes the client each time. Whether they are the first that wait."""
        is_first = not self._joined
        self._joined += buffers
        self.joined_bytes += sum(map(len, buffers))
        if self.joined_bytes >= MAX_JOINED_BYTES:
            self.flush()
        return is_first

    def flush(self) -> None:
        """Send what waits."""
        if self._joined:
            joined = self._joined
            self._forget_joined()
            if not self.transport.is_closing():
                self.sink.writelines(joined)

    def pause(self, now: float) -> None:
        """The transport has enough."""
        self.is_paused = True
        if self.tls_writer is not None:
            self.tls_writer.pause()
        if not self.unsent_since:
            self.unsent_since = now
            self.unsent_bytes = self.count_unsent()

    def resume(self) -> None:
        self.is_paused = False
        if self.tls_writer is not None:
            # It may be too much for the transport again.
            self.tls_writer.resume()
        if not self.is_paused:
            self.unsent_since = 0.0
            self.release_sent()

    def hold(self, on_sent: Callable[[], None], now: float) -> None:
        """Call this when all bytes that are written up to the next release are sent, or never will be."""
        self.on_sent.append(on_sent)
        self.moved_at = now
        self.held_since = self.held_since or now

    def release_sent(self) -> None:
        """Call `on_sent` of the responses, if they are sent or will not be read."""
        if self.on_sent and not self.count_unsent():
            held, self.on_sent, self.held_since = self.on_sent, [], 0.0
            for on_sent in held:
                on_sent()

    def note_movement(self, now: float) -> None:
        """Whether the client has read anything since the last call."""
        if self.on_sent or self.behind_since:
            unsent = self.count_unsent()
            if unsent < self._unsent_before:
                self.moved_at = now
                if self.behind_since:
                    self.behind_since = now
            self._unsent_before = unsent

    @property
    def may_be_behind(self) -> bool:
        """Whether `behind_bytes` may be something else than 0, or than before."""
        is_behind = self.is_paused or self.behind_since > 0.0
        return is_behind or self.transport.get_write_buffer_size() > NOTICED_BYTES

    @property
    def behind_bytes(self) -> int:
        """What the client has not read, if that is more than NOTICED_BYTES or so much that reading pauses."""
        unsent = self.count_unsent()
        return unsent if self.is_paused or unsent > NOTICED_BYTES else 0

    def note_behind(self, now: float) -> None:
        self.behind_since = (self.behind_since or now) if self.behind_bytes else 0.0

    def count_unsent(self) -> int:
        """Bytes of responses that are still here and may be read."""
        if self._is_aborted:
            return 0
        waiting = self.tls_writer.waiting_bytes if self.tls_writer is not None else 0
        return waiting + self.joined_bytes + self.transport.get_write_buffer_size()

    def _forget_joined(self) -> None:
        self._joined, self.joined_bytes = [], 0
