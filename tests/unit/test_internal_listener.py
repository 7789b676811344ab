"""The internal listener of a gateway in this process: principals, limits, settings, and hostile bytes."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.addresses import Address
from gateway.assembly import HOST
from gateway.config import load_settings
from gateway.internal.listener import bindings_of
from gateway.network.connection import REFUSED_SECONDS
from gateway.network.links import Listening
from gateway.network.sockets import Sockets
from gateway.settings import ConfigError
from pipeline.links import PlainLink, TlsLink, UnixLink
from pipeline.peer import PeerClient, PeerRefused, PeerUnavailable
from tests.support.certificates import Authority, Issued, principal_of
from tests.support.in_memory import InMemoryGateway, in_memory_gateway
from tests.support.raw import Outcome, RawConnection, frame, request

FIND_BATCHES = 98
API_VERSIONS = 18


def works(client: PeerClient) -> None:
    with client:
        assert client.describe().cluster_id


@contextmanager
def raw(path: Path) -> Iterator[RawConnection]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10.0)
        sock.connect(str(path))
        yield RawConnection(sock)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_settings(authority: Authority, principals: str) -> dict[str, str]:
    server = authority.server()
    return {
        "internal.listen": "SSL://127.0.0.1:0",
        "tls.certificate": str(server.certificate),
        "tls.key": str(server.key),
        "internal.ca": str(authority.file),
        "internal.principals": principals,
    }


def link_by(gateway: InMemoryGateway, authority: Authority, issued: Issued) -> TlsLink:
    port = gateway.running.internal.bound[0].port
    return TlsLink("127.0.0.1", port, authority.file, issued.certificate, issued.key)


def client_by(gateway: InMemoryGateway, authority: Authority, issued: Issued) -> PeerClient:
    return PeerClient(link_by(gateway, authority, issued), 2.0)


def others_are_closed(client: PeerClient, link: TlsLink) -> None:
    """Whatever else a client with a wrong certificate requests, and if it requests nothing."""
    calls: list[Callable[[PeerClient], object]] = [
        lambda peer: peer.describe_files(["x"]),
        lambda peer: peer.journal(0),
        lambda peer: peer.pin(bytes(16)),
    ]
    for call in calls:
        with client, pytest.raises(PeerUnavailable, match=r"closed the connection|reset"):
            call(client)
    with link.connect(5.0) as sock:
        sock.settimeout(REFUSED_SECONDS + 5.0)
        assert sock.recv(1) == b""


async def test_only_principals_that_are_named_use_a_tls_listener(authority: Authority) -> None:
    named, other = authority.client("named"), authority.client("other")
    with capture_logs() as events:
        async with in_memory_gateway(tls_settings(authority, f"User:CN=x; {principal_of(named)}")) as gateway:
            await asyncio.to_thread(works, client_by(gateway, authority, named))
            began_s = time.monotonic()
            with pytest.raises(PeerRefused) as refused:
                await asyncio.to_thread(works, client_by(gateway, authority, other))
            # At once, and not when its repeats have ended.
            assert time.monotonic() - began_s < 1.5
            assert str(refused.value) == (
                f"CLUSTER_AUTHORIZATION_FAILED: {principal_of(other)} is not one of internal.principals of "
                "this gateway"
            )
            link = link_by(gateway, authority, other)
            await asyncio.to_thread(others_are_closed, PeerClient(link, 1.0), link)
            await asyncio.to_thread(works, client_by(gateway, authority, named))
    said = [str(event) for event in events]
    assert any(f"{principal_of(other)} is not one of internal.principals" in line for line in said), said
    (denied,) = [event for event in events if event.get("api") == "DESCRIBE_SHARD"]
    assert denied["event"] == "request.denied" and denied["error"] == "CLUSTER_AUTHORIZATION_FAILED"
    assert denied["principal"] == principal_of(other) and denied["peer"] == "127.0.0.1"


async def test_a_tls_listener_takes_no_client_without_a_certificate_of_its_ca(
    authority: Authority, tmp_path: Path
) -> None:
    named = authority.client("named")
    stranger = Authority(tmp_path, "stranger").client("named")
    context = ssl.create_default_context(cafile=str(authority.file))

    def without() -> bytes:
        place = "127.0.0.1", gateway.running.internal.bound[0].port
        with socket.create_connection(place, 5.0) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as sock:
                sock.sendall(request(API_VERSIONS, 0))
                return sock.recv(100)

    async with in_memory_gateway(tls_settings(authority, principal_of(named))) as gateway:
        with pytest.raises(PeerUnavailable):
            await asyncio.to_thread(works, client_by(gateway, authority, stranger))
        with pytest.raises(OSError):
            await asyncio.to_thread(without)
        await asyncio.to_thread(works, client_by(gateway, authority, named))


def settings_of(given: dict[str, str]) -> Any:
    return load_settings(given, {})


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        ("internal.principals", "internal.listen needs internal.principals"),
        ("internal.ca", "internal.listen needs internal.ca or tls.ca"),
    ],
)
def test_a_tls_listener_without_what_it_needs_is_refused(
    authority: Authority, left_out: str, why: str
) -> None:
    given = tls_settings(authority, "User:CN=jobs")
    assert len(bindings_of(settings_of(given))) == 1
    del given[left_out]
    with pytest.raises(ConfigError, match=why):
        bindings_of(settings_of(given))


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("9094", "expected PLAINTEXT://HOST:PORT or SSL://HOST:PORT"),
        ("SASL_SSL://h:1", "there is no SASL_SSL://"),
        ("SSL://h:99999", "internal.listen = 'h:99999'"),
    ],
)
def test_an_address_that_is_none_is_refused(listen: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        bindings_of(settings_of({"internal.listen": listen}))


def test_principals_that_are_none_are_refused(authority: Authority) -> None:
    with pytest.raises(ConfigError, match="'CN=b' is no principal"):
        bindings_of(settings_of(tls_settings(authority, "User:CN=a,O=c;CN=b")))


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0", "0:0", "192.0.2.1:0", "[2001:db8::1]:0"])
async def test_a_plain_listener_beyond_loopback_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="only loopback may be listened on; use SSL://"):
        async with in_memory_gateway({"internal.listen": f"PLAINTEXT://{address}"}):
            pass


@dataclass
class Elsewhere:
    """A host name that turns out to be of an address that others reach."""

    one: Listening
    was_closed: bool = False

    @property
    def bound(self) -> Address:
        return Address("192.0.2.1", self.one.bound.port)

    def close(self) -> None:
        self.was_closed = True
        self.one.close()


class NamesElsewhere(Sockets):
    def __init__(self) -> None:
        self.opened: list[Elsewhere] = []

    async def listen(self, address: Address, flag: str) -> Sequence[Any]:
        if flag != "internal.listen":
            return await super().listen(address, flag)
        self.opened = [Elsewhere(one) for one in await super().listen(address, flag)]
        return self.opened


async def test_a_plain_listener_on_a_name_beyond_loopback_is_refused() -> None:
    links = NamesElsewhere()
    with pytest.raises(ConfigError, match="PLAINTEXT://localhost:0: without encryption"):
        async with in_memory_gateway(
            {"internal.listen": "PLAINTEXT://localhost:0"}, replace(HOST, links=links)
        ):
            pass
    assert links.opened and all(one.was_closed for one in links.opened)


async def test_a_plain_listener_on_loopback_serves() -> None:
    async with in_memory_gateway({"internal.listen": "PLAINTEXT://127.0.0.1:0"}) as gateway:
        port = gateway.running.internal.bound[0].port
        await asyncio.to_thread(works, PeerClient(PlainLink("127.0.0.1", port), 5.0))


async def test_a_socket_is_made_where_one_is_wanted(tmp_path: Path) -> None:
    async with in_memory_gateway() as without:
        assert without.running.internal.socket is None
    path = tmp_path / "s"
    async with in_memory_gateway({"internal.socket": str(path)}):
        await asyncio.to_thread(works, PeerClient(UnixLink(path), 5.0))
    assert not path.exists()
    data = {"storage.data": f"file:{tmp_path}", "storage.data_dir": str(tmp_path)}
    async with in_memory_gateway({**data, "internal.socket": "none"}) as refused:
        assert refused.running.internal.socket is None


HUGE = b"\xff\xff\xff\xff\x0f"
HOSTILE = {
    "an unknown key": request(20002, 0, bytes(20), flexible=True),
    "an API of clients": request(3, 12, b"\0", flexible=True),
    "a version that is not served": request(FIND_BATCHES, 1, bytes(20), flexible=True),
    "no body": request(FIND_BATCHES, 0, flexible=True),
    "a body that ends too early": request(FIND_BATCHES, 0, bytes(8) + b"\x02", flexible=True),
    "a huge count of topics": request(FIND_BATCHES, 0, bytes(8) + HUGE, flexible=True),
    "a huge count of files": request(100, 0, HUGE + bytes(40), flexible=True),
    "a huge count of batches": request(95, 0, b"\x02x\x01" + bytes(8) + b"\x01" + HUGE, flexible=True),
    "a huge string": request(100, 0, b"\x02" + HUGE + bytes(8), flexible=True),
    "very many tagged fields": request(20001, 0, bytes(24) + HUGE, flexible=True),
    "a header that ends too early": frame(b"\0\x62\0\0"),
    "a frame of 2 GiB": struct.pack(">i", 2**31 - 1) + bytes(100),
    "a frame of 17 MiB": struct.pack(">i", 17 << 20) + bytes(100),
    "a negative length": struct.pack(">i", -1),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
}


def attack(path: Path) -> dict[str, object]:
    """What each gets, other than a closed connection."""
    kept: dict[str, object] = {}
    with PeerClient(UnixLink(path), 10.0) as beside:
        beside.describe()
        for name, data in HOSTILE.items():
            with raw(path) as connection:
                connection.send(data)
                found = connection.read_frame()
                if found is not Outcome.CLOSED:
                    kept[name] = found
        with raw(path) as connection:
            connection.send(request(FIND_BATCHES, 0, bytes(40), flexible=True)[:-3])
            connection.finish_sending()
            assert connection.is_closed_by_peer()
        assert beside.describe().cluster_id
    return kept


async def test_hostile_bytes_close_their_connection_alone(tmp_path: Path) -> None:
    with capture_logs() as events:
        async with in_memory_gateway({"internal.socket": str(tmp_path / "s")}):
            assert await asyncio.to_thread(attack, tmp_path / "s") == {}
    assert not [event for event in events if event.get("exc_info")]


async def test_connections_beyond_their_number_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def crowd() -> bool:
        with raw(path) as first, raw(path) as second:
            for connection in (first, second):
                connection.send(request(API_VERSIONS, 0))
                assert isinstance(connection.read_frame(), bytes)
            with raw(path) as third:
                return third.is_closed_by_peer()

    async with in_memory_gateway({"internal.socket": str(path), "internal.connections": "2"}) as gateway:
        assert await asyncio.to_thread(crowd)
        assert b"dragoman_connections 0.0" in gateway.running.services.metrics.render()
