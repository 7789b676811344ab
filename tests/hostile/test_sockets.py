"""Half requests on the admin port, floods of log lines, unfinished frames."""

import resource
import socket
import struct
import time
import urllib.request
from collections.abc import Callable
from typing import Final

import pytest
from confluent_kafka import Producer

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ledger.batch.header import seal
from tests.hostile.arena import MIB, Arena, Bounds
from tests.hostile.conftest import OpenArena
from tests.hostile.speaking import ask, connect, exchange
from tests.hostile.test_batches import at_time, create_with, now_ms, packed, produced
from tests.support.messages import message
from tests.support.raw import RawConnection

FLOOD_BYTES: Final = 20_000
"""Of log that a flood may add."""


@pytest.mark.parametrize("head_ms", [1000, pytest.param(10_000, marks=pytest.mark.full)])
def test_half_requests_on_the_admin_port(open_arena: OpenArena, head_ms: int) -> None:
    arena = open_arena("--set", f"admin.request_head_ms={head_ms}")
    arena.rounds = 1
    # Fewer than what is opened here: without a bound of its own the admin port would take them all.
    resource.prlimit(arena.gateway.pid, resource.RLIMIT_NOFILE, (1500, 1500))
    address = arena.gateway.admin.host, arena.gateway.admin.port
    closed_after: list[float] = []

    def run() -> None:
        began = time.monotonic()
        half = []
        for _ in range(1600):
            sock = socket.create_connection(address, timeout=30.0)
            half.append(sock)
            try:
                sock.sendall(b"GET /met")
            except OSError:
                continue
        began_others = time.monotonic()
        assert isinstance(exchange(arena, message(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))[0], bytes)
        with urllib.request.urlopen(f"http://{arena.gateway.admin.address}/healthz", timeout=30.0) as page:
            assert page.status == 200
        assert time.monotonic() - began_others < 5.0
        for sock in half:
            sock.settimeout(30.0)
            assert RawConnection(sock).is_closed_by_peer()
            sock.close()
        closed_after.append(time.monotonic() - began)

    arena.withstands(f"1,600 half requests on the admin port, {head_ms} ms", run)
    assert closed_after[0] < 5 * head_ms / 1000 + 5.0


def tls_at_a_plaintext_listener(arena: Arena) -> None:
    options = {"bootstrap.servers": arena.gateway.bootstrap, "security.protocol": "SSL"}
    producer = Producer({**options, "logger": None, "log_level": 0})
    producer.poll(1.0)
    for _ in range(200):
        connection = connect(arena)
        connection.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400))
        connection.is_closed_by_peer()
        connection.sock.close()


def http_at_a_plaintext_listener(arena: Arena) -> None:
    for _ in range(200):
        connection = connect(arena)
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.is_closed_by_peer()
        connection.sock.close()


def names_of_groups(arena: Arena) -> None:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    frames = [
        message(
            ApiKey.JOIN_GROUP,
            3,
            JoinGroupRequest(f"{i}" + "g" * 2000, 6000, 6000, "", None, "consumer", protocols),
        )
        for i in range(300)
    ]
    # One each: a connection's next join waits until the one before it is answered, after seconds.
    connections = [connect(arena) for _ in frames]
    for connection, frame in zip(connections, frames, strict=True):
        connection.send(frame)
    time.sleep(1.0)
    for connection in connections:
        connection.sock.close()


def records_that_cannot_be_read(arena: Arena) -> None:
    topic = create_with(arena, f"unreadable-{time.monotonic_ns()}")
    batch = bytearray(packed(10, 0, now_ms()))
    batch[-4:] = b"junk"
    seal(batch)
    produced(arena, topic, bytes(batch))
    for _ in range(200):
        ask(arena, ApiKey.LIST_OFFSETS, 7, at_time(topic, now_ms() - 1000))


FLOODS: Final[dict[str, Callable[[Arena], None]]] = {
    "TLS at a plaintext listener": tls_at_a_plaintext_listener,
    "HTTP at a plaintext listener": http_at_a_plaintext_listener,
    "joins of groups with long names": names_of_groups,
    "lookups in unreadable records": records_that_cannot_be_read,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_floods_of_the_log(arena: Arena, flood: str) -> None:
    path = arena.gateway.log_path
    before = path.stat().st_size
    arena.withstands(f"{flood}", lambda: FLOODS[flood](arena))
    added = path.stat().st_size - before
    assert added <= FLOOD_BYTES, path.read_text()[before : before + 2000]


@pytest.mark.parametrize(
    ("connections", "frame_mib", "budget_mib"),
    [(12, 40, 128), pytest.param(20, 60, 512, marks=pytest.mark.full)],
)
def test_frames_that_are_never_finished(
    open_arena: OpenArena, connections: int, frame_mib: int, budget_mib: int
) -> None:
    budget = budget_mib * MIB
    # With 32 KiB for each connection that there may be, small requests pass all the same.
    arena = open_arena(
        limits__buffer_bytes=budget, limits__frame_bytes=100 * MIB, limits__connections=budget // (32 * 1024)
    )

    def run() -> None:
        slow = [connect(arena) for _ in range(connections)]
        for connection in slow:
            connection.sock.settimeout(0.2)
            try:
                connection.sock.sendall(struct.pack(">i", 100 * MIB) + bytes(frame_mib * MIB))
            except OSError:
                continue
        time.sleep(0.5)
        for connection in slow:
            connection.sock.close()

    name = f"{connections} x {frame_mib} MiB of unfinished frames, budget {budget_mib} MiB"
    arena.withstands(name, run, Bounds(memory_bytes=3 * budget // 2))
