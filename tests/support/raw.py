"""Raw sockets for tests that say what no client library would say.

    response = raw_exchange(host, port, request(ApiVersions, 0, correlation_id=7))

A response is the frame after its length, so it begins with the correlation id; or an `Outcome` when the
peer closed the connection or said nothing in time.
"""

import enum
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MAX_RESPONSE_BYTES = 128 * 1024 * 1024
RECEIVE_BYTES = 65536


class Outcome(enum.Enum):
    CLOSED = "the peer closed the connection"
    SILENT = "the peer sent nothing in time"


def frame(payload: bytes) -> bytes:
    """The payload after its int32 length."""
    return struct.pack(">i", len(payload)) + payload


def request(
    api_key: int,
    version: int,
    body: bytes = b"",
    *,
    correlation_id: int = 1,
    client_id: str | None = "raw",
    flexible: bool = False,
) -> bytes:
    """A framed request: header version 1, or 2 (with empty tagged fields) when `flexible`."""
    name = b"" if client_id is None else client_id.encode()
    name_length = -1 if client_id is None else len(name)
    header = struct.pack(">hhih", api_key, version, correlation_id, name_length) + name
    return frame(header + (b"\0" if flexible else b"") + body)


class RawConnection:
    """A blocking connection of which every wait ends after `timeout_s`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, data: bytes) -> None:
        """Send as it is. A peer that has closed already is no error here: the next read reports it."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)

    def finish_sending(self) -> None:
        """Close our half, as a client that goes away in the middle of a frame."""
        self.sock.shutdown(socket.SHUT_WR)

    def read_frame(self) -> bytes | Outcome:
        """The next response without its length. Errors: ValueError for a length that cannot be."""
        head = self._read_exactly(4)
        if isinstance(head, Outcome):
            return head
        (length,) = struct.unpack(">i", head)
        if not 4 <= length <= MAX_RESPONSE_BYTES:
            raise ValueError(f"response frame of {length} bytes")
        return self._read_exactly(length)

    def is_closed_by_peer(self) -> bool:
        """True when the peer closes within the timeout; anything it still sends is dropped."""
        while True:
            data = self._receive(RECEIVE_BYTES)
            if isinstance(data, Outcome):
                return data is Outcome.CLOSED

    def _read_exactly(self, wanted: int) -> bytes | Outcome:
        received = bytearray()
        while len(received) < wanted:
            data = self._receive(min(RECEIVE_BYTES, wanted - len(received)))
            if isinstance(data, Outcome):
                return data
            received += data
        return bytes(received)

    def _receive(self, most: int) -> bytes | Outcome:
        try:
            data = self.sock.recv(most)
        except TimeoutError:
            return Outcome.SILENT
        except ConnectionResetError:
            return Outcome.CLOSED
        return data or Outcome.CLOSED


@contextmanager
def raw_connection(host: str, port: int, timeout_s: float = 5.0) -> Iterator[RawConnection]:
    with socket.create_connection((host, port), timeout=timeout_s) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield RawConnection(sock)


def raw_exchange(host: str, port: int, data: bytes, timeout_s: float = 5.0) -> bytes | Outcome:
    """Connect, send `data` as it is, read one response."""
    with raw_connection(host, port, timeout_s) as connection:
        connection.send(data)
        return connection.read_frame()
