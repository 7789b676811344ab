"""Clients that come to the wrong listener, or with the wrong certificate: the log says so, in few lines."""

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.framing import FrameAssembler, FrameRefused
from tests.support.certificates import Authority, Issued
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.raw import RawConnection, request

CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
HTTP = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
API_VERSIONS = 18


@contextmanager
def connected(gateway: Gateway) -> Iterator[RawConnection]:
    with socket.create_connection((gateway.host, gateway.port), timeout=10.0) as sock:
        yield RawConnection(sock)


def events(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    lines = gateway.log_path.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and f'"{name}"' in line]


def logged(gateway: Gateway, name: str, count: int = 1) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 10.0
    while len(found := events(gateway, name)) < count:
        assert time.monotonic() < deadline, gateway.log_tail()
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(("said", "named"), [(CLIENT_HELLO, "TLS"), (HTTP, "HTTP")])
def test_what_is_spoken_at_a_plaintext_listener_is_named(gateway: Gateway, said: bytes, named: str) -> None:
    for _ in range(60):
        with connected(gateway) as connection:
            connection.send(said)
            assert connection.is_closed_by_peer()
    found = logged(gateway, "connection.refused")
    assert f"speaks {named}" in found[0]["reason"] and "PLAINTEXT" in found[0]["reason"]
    assert len(found) <= 2


@pytest.mark.parametrize(
    ("said", "speaks"),
    [
        (CLIENT_HELLO, "TLS"),
        (HTTP, "HTTP"),
        (b"POST / HTTP/1.1", "HTTP"),
        (b"\xff\xff\xff\xff", ""),
        (b"\0" * 4, ""),
    ],
)
def test_the_first_bytes_tell_other_protocols_from_sizes_that_are_wrong(said: bytes, speaks: str) -> None:
    assembler = FrameAssembler(100 * 1024 * 1024)
    buffer = assembler.get_buffer()
    buffer[: len(said)] = said
    with pytest.raises(FrameRefused) as refusal:
        assembler.buffer_updated(len(said))
    assert refusal.value.speaks == speaks


def at_tls(gateway_factory: GatewayFactory, tmp_path: Path, *more: str) -> tuple[Gateway, Authority]:
    authority = Authority(tmp_path)
    issued = authority.server()
    options = [f"tls.certificate={issued.certificate}", f"tls.key={issued.key}", *more]
    words = [word for option in options for word in ("--set", option)]
    gateway = gateway_factory(words, listen="SSL://127.0.0.1:0")
    gateway.start()
    return gateway, authority


@pytest.mark.parametrize(("said", "named"), [(request(API_VERSIONS, 0), "no TLS"), (HTTP, "HTTP")])
def test_what_is_spoken_at_a_tls_listener_is_named(
    gateway_factory: GatewayFactory, tmp_path: Path, said: bytes, named: str
) -> None:
    gateway, _ = at_tls(gateway_factory, tmp_path)
    with connected(gateway) as connection:
        connection.send(said)
        assert connection.is_closed_by_peer()
    (event,) = logged(gateway, "connection.turned_away")
    assert event["reason"] == "tls" and f"speaks {named}" in event["why"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shown", ["none", "of another CA"])
def test_a_client_whose_certificate_is_refused_gets_an_error(
    gateway_factory: GatewayFactory, tmp_path: Path, version: ssl.TLSVersion, shown: str
) -> None:
    ca = f"tls.ca={tmp_path / 'ca.pem'}"
    gateway, _ = at_tls(gateway_factory, tmp_path, ca, "tls.client_auth=required")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if shown != "none":
        other = Authority(tmp_path, "other").client()
        context.load_cert_chain(other.certificate, other.key)
    with connected(gateway) as connection, pytest.raises(ssl.SSLError, match="ALERT"):
        with context.wrap_socket(connection.sock) as wrapped:
            wrapped.recv(1)


def test_handshakes_that_fail_for_different_causes_are_each_logged(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    ca = f"tls.ca={tmp_path / 'ca.pem'}"
    gateway, _ = at_tls(gateway_factory, tmp_path, ca, "tls.client_auth=required")
    other = Authority(tmp_path, "other").client()

    def handshake(client: Issued | None) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        with connected(gateway) as connection, suppress(OSError):
            with context.wrap_socket(connection.sock) as wrapped:
                wrapped.recv(1)

    def plain(_: Issued | None) -> None:
        with connected(gateway) as connection:
            connection.send(request(API_VERSIONS, 0))
            connection.is_closed_by_peer()

    causes: list[tuple[Callable[[Issued | None], None], Issued | None]] = [
        (handshake, None),
        (handshake, other),
        (plain, None),
    ]
    for cause, client in causes * 5:
        cause(client)
    found = logged(gateway, "connection.turned_away", 3)
    assert len({event["why"] for event in found}) == 3
    assert len(found) <= 6
