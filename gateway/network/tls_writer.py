"""Writes to a TLS transport in small pieces.

A TLS transport encrypts at once all that is written to it, and passes it to the socket's transport, where it
is not counted any more: a large response to a client that does not read would be held a second time,
uncounted, and all other clients would wait while it is encrypted. So it gets the next piece only when the
socket accepts more.
"""

from asyncio import Transport
from collections import deque
from collections.abc import Sequence
from typing import Final

from ledger.types import Buffer

PIECE_BYTES: Final = 256 * 1024
RECORD_BYTES: Final = 16 * 1024
"""Of plain text, the most that a TLS record has."""


class PacedWriter:
    """What a TLS connection still has to send, in order."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._waiting: deque[Buffer] = deque()
        self._is_paused = False
        self.waiting_bytes = 0
        transport.set_write_buffer_limits(high=2 * PIECE_BYTES)

    def writelines(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            if len(buffer):
                self._waiting.append(buffer)
                self.waiting_bytes += len(buffer)
        self._go_on()

    def pause(self) -> None:
        """The transport can take no more for now."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._go_on()

    def clear(self) -> None:
        self._waiting.clear()
        self.waiting_bytes = 0

    def _go_on(self) -> None:
        # The transport may call `pause` from within.
        while self._waiting and not self._is_paused and not self._transport.is_closing():
            self._transport.write(self._next_piece())

    def _next_piece(self) -> Buffer:
        if len(self._waiting[0]) >= RECORD_BYTES:
            # As it is: the bytes are read when they are encrypted.
            return self._take(PIECE_BYTES)
        # Small ones are joined, since every write begins a TLS record of its own.
        piece: list[Buffer] = []
        size = 0
        while size < PIECE_BYTES and self._waiting and len(self._waiting[0]) < RECORD_BYTES:
            piece.append(self._take(PIECE_BYTES - size))
            size += len(piece[-1])
        if self._waiting and size % RECORD_BYTES:
            # Of a large one what fills the last record.
            piece.append(self._take(RECORD_BYTES - size % RECORD_BYTES))
        return b"".join(piece)

    def _take(self, most: int) -> Buffer:
        """At most so many bytes of the first buffer."""
        buffer = self._waiting.popleft()
        if len(buffer) > most:
            view = memoryview(buffer)
            self._waiting.appendleft(view[most:])
            buffer = view[:most]
        self.waiting_bytes -= len(buffer)
        return buffer
