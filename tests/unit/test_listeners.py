"""Addresses that mean all addresses, several listeners, IPv6, and warnings."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from gateway.addresses import is_loopback, parse_bindings
from gateway.completion import Cancellable, Completion
from gateway.network.pipeline import Peer
from gateway.network.server import Server
from gateway.response import Buffers, Response
from gateway.settings import ConfigError, Limits
from gateway.telemetry.metrics import Metrics
from gateway.wire.apis import ApiKey
from gateway.wire.connection import Request
from tests.support.raw import request

WAIT_S = 60.0


class NamesItsListener:
    """Answers each request with the name, host and port of the listener by which it came."""

    def __init__(self) -> None:
        self.served = {int(ApiKey.METADATA): (0, 0)}

    def is_pipelined(self, api_key: int) -> bool:
        return False

    def is_inline(self, api_key: int) -> bool:
        return False

    def may_park(self, api_key: int) -> bool:
        return False

    def start(
        self, request: Request, peer: Peer, received_at: float, completion: Completion[Buffers | None]
    ) -> Cancellable:
        raise NotImplementedError

    def starved_since(self) -> float:
        return 0.0

    def waiting_since(self) -> float:
        return 0.0

    async def answer(self, request: Request, peer: Peer, received_at: float) -> Response:
        listener = peer.listener
        return Response([f"{listener.name} {listener.host} {listener.port}".encode()])


@asynccontextmanager
async def listening(listen: Sequence[str], advertise: Sequence[str] = ()) -> AsyncIterator[Server]:
    server = Server(Limits(drain_ms=1000), NamesItsListener(), Metrics())
    await server.listen(parse_bindings(listen, advertise))
    try:
        yield server
    finally:
        await server.close()


async def advertised(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request(ApiKey.METADATA, 0))
        async with asyncio.timeout(WAIT_S):
            size = int.from_bytes(await reader.readexactly(4), "big")
            return (await reader.readexactly(size)).decode()
    finally:
        writer.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "[::0]", "[0:0:0:0:0:0:0:0]", "0", "0x0", "0.0"])
def test_every_way_to_write_all_addresses_needs_an_advertised_one(host: str) -> None:
    with pytest.raises(ConfigError, match=r"listeners\.advertise"):
        parse_bindings([f"PLAINTEXT://{host}:9092"], [])
    with pytest.raises(ConfigError, match=r"listeners\.advertise = .*every address"):
        parse_bindings(["PLAINTEXT://127.0.0.1:9092"], [f"{host}:9092"])


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "192.0.2.1", "kafka.example", "localhost", "1"])
def test_one_address_is_not_all_addresses(host: str) -> None:
    assert parse_bindings([f"PLAINTEXT://{host}:9092"], [])


def test_the_scheme_says_whether_a_listener_speaks_tls() -> None:
    plain, tls = parse_bindings(["plaintext://127.0.0.1:1", "ssl://127.0.0.1:2"], [])
    assert (plain.name, plain.is_tls, tls.name, tls.is_tls) == ("PLAINTEXT", False, "SSL", True)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("x", False),
    ],
)
def test_only_loopback_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_a_request_knows_the_listener_by_which_it_came() -> None:
    listen = ["PLAINTEXT://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0", "PLAINTEXT://[::1]:0"]
    advertise = ["outside.example:9092", "127.0.0.1:0", "[2001:db8::1]:0"]
    async with listening(listen, advertise) as server:
        first, second, third = server.bound
        assert await advertised("127.0.0.1", first.port) == "PLAINTEXT outside.example 9092"
        assert await advertised("127.0.0.1", second.port) == f"PLAINTEXT 127.0.0.1 {second.port}"
        assert await advertised("::1", third.port) == f"PLAINTEXT 2001:db8::1 {third.port}"


async def test_a_name_listens_on_all_addresses_that_it_resolves_to() -> None:
    async with listening(["PLAINTEXT://localhost:0"]) as server:
        port = server.bound[0].port
        assert await advertised("127.0.0.1", port) == f"PLAINTEXT localhost {port}"


async def test_what_others_can_read_is_warned_of_and_loopback_is_not() -> None:
    with capture_logs() as events:
        async with listening(["PLAINTEXT://127.0.0.1:0", "PLAINTEXT://[::1]:0"]):
            pass
        assert not [event for event in events if event["event"] == "listener.plaintext"]
        async with listening(["PLAINTEXT://0.0.0.0:0"], ["127.0.0.1:0"]):
            pass
    (warning,) = [event for event in events if event["event"] == "listener.plaintext"]
    assert warning["log_level"] == "warning" and warning["listener"] == "PLAINTEXT://0.0.0.0:0"
