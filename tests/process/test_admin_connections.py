"""The admin address under strangers: few connections, none that only waits."""

import json
import socket
import time
import urllib.request

import pytest

from tests.support.gateway import Gateway, GatewayFactory
from tests.support.raw import RawConnection

pytestmark = pytest.mark.serial

MALFORMED = [
    b"GET /?" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX-Secret: " + b"x" * 9_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n|zz\r\n",
    b"POST /api/group/reset HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
]
"""What comes after a bar is sent a little later."""
HALF = (
    b"POST /api/group/reset HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def connected(gateway: Gateway) -> RawConnection:
    sock = socket.create_connection((gateway.admin.host, gateway.admin.port), timeout=10.0)
    return RawConnection(sock)


def response_to(connection: RawConnection) -> bytes:
    connection.send(GET)
    return connection.sock.recv(4096)


@pytest.mark.parametrize("said", [b"", b"GET /met", GET[:-2]])
def test_a_request_that_is_not_whole_in_time_is_closed(gateway_factory: GatewayFactory, said: bytes) -> None:
    gateway = gateway_factory(["--set", "admin.request_head_ms=500"])
    gateway.start()
    began = time.monotonic()
    connection = connected(gateway)
    connection.send(said)
    assert connection.is_closed_by_peer()
    assert 0.4 < time.monotonic() - began < 5.0


def test_a_connection_may_ask_again_and_is_closed_when_it_does_not(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(["--set", "admin.request_head_ms=1000"])
    gateway.start()
    connection = connected(gateway)
    for _ in range(4):
        assert response_to(connection).startswith(b"HTTP/1.1 200")
        time.sleep(0.4)
    assert connection.is_closed_by_peer()


def test_one_connection_more_takes_the_place_of_the_one_that_waits_longest(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(["--set", "admin.connections=3"])
    gateway.start()
    silent = []
    for _ in range(3):
        silent.append(connected(gateway))
        time.sleep(0.1)
    assert response_to(silent[0]).startswith(b"HTTP/1.1 200")
    with urllib.request.urlopen(f"http://{gateway.admin.address}/healthz", timeout=10.0) as page:
        assert page.status == 200
    # The first has sent a request since, so the second was replaced.
    assert silent[1].is_closed_by_peer()
    assert response_to(silent[0]).startswith(b"HTTP/1.1 200")
    assert response_to(silent[2]).startswith(b"HTTP/1.1 200")


def test_bodies_that_do_not_come_shut_no_one_out_and_end_in_time(gateway_factory: GatewayFactory) -> None:
    sets = ["admin.write=true", "admin.connections=64", "admin.request_head_ms=3000"]
    gateway = gateway_factory([word for value in sets for word in ("--set", value)])
    gateway.start()
    half = [connected(gateway) for _ in range(64)]
    for connection in half:
        connection.send(HALF)
    time.sleep(0.5)
    began = time.monotonic()
    for _ in range(3):
        with urllib.request.urlopen(f"http://{gateway.admin.address}/healthz", timeout=10.0) as page:
            assert page.status == 200
    assert time.monotonic() - began < 2.0
    assert half[-1].sock.recv(4096).startswith(b"HTTP/1.1 408")
    assert half[-1].is_closed_by_peer()
    log = gateway.log_tail(100_000)
    assert "Traceback" not in log and "library.message" not in log


def test_a_body_that_comes_late_but_in_time_is_read(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(["--set", "admin.write=true", "--set", "admin.request_head_ms=3000"])
    gateway.start()
    connection = connected(gateway)
    connection.send(HALF)
    time.sleep(1.0)
    connection.send(b" " * 98 + b"}")
    answer = connection.sock.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400") and b"preview is missing" in answer
    assert response_to(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("said", MALFORMED, ids=["line", "header", "name", "chunk", "posted-chunk"])
def test_what_is_no_http_is_logged_in_few_lines_without_what_it_says(
    gateway_factory: GatewayFactory, said: bytes
) -> None:
    gateway = gateway_factory(["--set", "admin.write=true", "--set", "admin.request_head_ms=1000"])
    gateway.start()
    for _ in range(200):
        connection = connected(gateway)
        first, *later = said.split(b"|")
        connection.send(first)
        for part in later:
            time.sleep(0.005)
            connection.send(part)
        assert connection.sock.recv(4096).startswith(b"HTTP/1.")
        connection.sock.close()
    lines = gateway.log_tail(1_000_000).splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events.count("library.message") <= 3 and events.count("admin.request_malformed") <= 5
    assert not any("Traceback" in line or "xxx" in line for line in lines)
    assert response_to(connected(gateway)).startswith(b"HTTP/1.1 200")
