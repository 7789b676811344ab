"""A small blocking Kafka client over the gateway's own codec, for the demo and for commands."""

import socket
import ssl
import struct
from types import TracebackType
from typing import Any, Final

from gateway.addresses import Address
from gateway.cli.tls import hint_for, reason_of
from gateway.wire.apis import ApiKey
from gateway.wire.header import RequestHeader, decode_response_header, encode_request_header
from gateway.wire.messages import codec

CLIENT_ID: Final = "dragoman"
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
HTTP: Final = b"HTTP"
WEB_PAGE: Final = "that is a web page, perhaps the admin address; name the Kafka port, --bootstrap HOST:PORT"
_LENGTH: Final = struct.Struct(">i")


class ClientError(Exception):
    """The server cannot be reached, closed the connection, or did not respond in time. `hint`: what may
    help."""

    hint: str = ""


class NotConnected(ClientError):
    """The other end was not there, or TLS with it did not come about."""

    def __init__(self, address: Address, error: OSError) -> None:
        self.reason = reason_of(error)
        super().__init__(f"cannot connect to {address}: {self.reason}")
        self.hint = hint_for(error)


class Unreadable(ClientError):
    """What it responded is not Kafka's protocol in clear. `size`: its first four bytes, read as a length."""

    def __init__(self, address: Address, size: int) -> None:
        head = size.to_bytes(4, "big", signed=True)
        super().__init__(f"{address} {_what_responded(head, size)}")
        if head == HTTP:
            self.hint = WEB_PAGE


class Client:
    """One connection, over TLS if there is a context; one request at a time. Every wait ends after
    `timeout` seconds, that for the connection after `connect_timeout` if there is one."""

    def __init__(
        self,
        address: Address,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float | None = None,
    ) -> None:
        """Errors: NotConnected."""
        self._address = address
        self._correlation_id = 0
        try:
            self._socket = _connected(address, connect_timeout or timeout, tls)
        except OSError as error:
            raise NotConnected(address, error) from error
        self._socket.settimeout(timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        """Send a request message and return the response message. Raises ClientError."""
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, CLIENT_ID)
        frame = encode_request_header(header) + codec.encode_request(key, version, request)
        try:
            self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
            (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                raise Unreadable(self._address, size)
            response = memoryview(self._read(size))
        except OSError as error:
            raise ClientError(f"{self._address} did not respond to {key.name}: {reason_of(error)}") from error
        correlation_id, body_at = decode_response_header(key, version, response)
        if correlation_id != self._correlation_id:
            raise ClientError(f"{self._address} responded to another request")
        return codec.decode_response(key, version, response[body_at:])

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(min(size - len(received), 1 << 20))
            if not part:
                raise ClientError(f"{self._address} closed the connection")
            received += part
        return bytes(received)


def _what_responded(head: bytes, size: int) -> str:
    # An alert or a handshake of any version of TLS.
    if head[:2] in (b"\x15\x03", b"\x16\x03"):
        return "responded in TLS"
    return "responded in HTTP" if head == HTTP else f"sent a response of {size} bytes"


def _connected(address: Address, timeout: float, tls: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection((address.host, address.port), timeout)
    if tls is None:
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise
