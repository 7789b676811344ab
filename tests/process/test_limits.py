"""Clients that mean no good, against a real gateway: its memory stays bounded, and others are served."""

import os
import socket
import ssl
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.certificates import Authority
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.raw import RawConnection, request

pytestmark = pytest.mark.serial

MIB = 1024 * 1024
FETCH, METADATA, API_VERSIONS = 1, 3, 18
TOPIC = "large"
RECORDS = 48
WAIT_S = 30.0
BUDGET = 64 * MIB
READING = 256 * MIB
"""What all fetches together may hold while they read."""
FETCH_BUDGET = 32 * MIB
FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
MUTE_S = 8.0 if FULL else 4.0
UNFINISHED_S = 5.0 if FULL else 3.0
"""How long the memory is looked at."""


def settings(**changed: int | str) -> list[str]:
    return [
        word for name, value in changed.items() for word in ("--set", f"{name.replace('__', '.')}={value}")
    ]


def rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def metric(gateway: Gateway, line: str) -> float:
    with urllib.request.urlopen(f"http://{gateway.admin.address}/metrics", timeout=WAIT_S) as page:
        for text in page.read().decode().splitlines():
            if text.startswith(line + " "):
                return float(text.split()[-1])
    return 0.0


def refused(gateway: Gateway, reason: str) -> float:
    return metric(gateway, f'dragoman_connections_refused_total{{reason="{reason}"}}')


def until(condition: Callable[[], bool], seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def fetch_request(max_bytes: int) -> bytes:
    """Fetch version 4 of partition 0 from offset 0."""
    name = TOPIC.encode()
    head = struct.pack(">iiiibi", -1, 0, 1, max_bytes, 0, 1)
    topic = struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, 0, 0, max_bytes)
    return request(FETCH, 4, head + topic)


class Healthy:
    """Requests ApiVersions all the time over a connection of its own, and notes the longest wait."""

    def __init__(self, gateway: Gateway, connect: Callable[[], socket.socket]) -> None:
        self.longest_s = 0.0
        self.responses = 0
        self.failure: object = None
        self._connection = RawConnection(connect())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Healthy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.sock.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self._connection.send(request(API_VERSIONS, 0))
            response = self._connection.read_frame()
            if not isinstance(response, bytes):
                self.failure = response
                return
            self.responses += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            time.sleep(0.02)


@contextmanager
def connections(number: int, connect: Callable[[], socket.socket]) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect()) for _ in range(number)]


def plain(gateway: Gateway, small_window: bool = False) -> Callable[[], socket.socket]:
    def connect() -> socket.socket:
        sock = socket.socket()
        if small_window:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(WAIT_S)
        sock.connect((gateway.host, gateway.port))
        return sock

    return connect


def over_tls(gateway: Gateway, small_window: bool = False) -> Callable[[], socket.socket]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return lambda: context.wrap_socket(plain(gateway, small_window)())


def fill(bootstrap: str) -> None:
    """A topic with RECORDS batches of about 1 MiB."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(RECORDS):
        producer.produce(TOPIC, bytes(950_000), partition=0)
    assert producer.flush(WAIT_S) == 0


def held_to(gateway: Gateway, bound: int, seconds: float) -> int:
    """The highest memory within this number of seconds; fails as soon as it is beyond the bound."""
    highest, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        highest = max(highest, rss_bytes(gateway.pid))
        assert highest < bound, f"{highest // MIB} MiB"
        time.sleep(0.02)
    return highest


@pytest.fixture
def tls_settings(tmp_path: Path) -> Sequence[str]:
    server = Authority(tmp_path).server()
    return settings(tls__certificate=str(server.certificate), tls__key=str(server.key))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_clients_that_never_read_hold_a_bounded_memory_and_delay_others_only_briefly(
    gateway_factory: GatewayFactory, tls_settings: Sequence[str], protocol: str
) -> None:
    connect = plain if protocol == "PLAINTEXT" else over_tls
    extra = settings(
        limits__buffer_bytes=BUDGET, limits__frame_bytes=8 * MIB, limits__connections=500, cache__run_bytes=0
    )
    gateway = gateway_factory(
        [*extra, *tls_settings, "--listen", "PLAINTEXT://127.0.0.1:0"], listen=f"{protocol}://127.0.0.1:0"
    )
    gateway.start()
    fill(gateway.ready.listeners[1].address)
    before = rss_bytes(gateway.pid)
    # All responses together would be 40 * 45 MB.
    with connections(40, connect(gateway, small_window=True)) as mute:
        with Healthy(gateway, connect(gateway)) as healthy:
            for sock in mute:
                sock.sendall(fetch_request(64 * MIB) * 3)
            highest = held_to(gateway, before + 2 * BUDGET + READING + 128 * MIB, seconds=MUTE_S)
            until(lambda: metric(gateway, "dragoman_buffer_bytes") < BUDGET)
    assert highest - before > 40 * MIB, "no connection held anything"
    assert refused(gateway, "memory") > 0
    assert healthy.failure is None and healthy.responses > 20
    assert healthy.longest_s < 3.0


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_unread_responses_stay_within_the_memory_of_fetches_and_others_still_get_records(
    gateway_factory: GatewayFactory, tls_settings: Sequence[str], protocol: str
) -> None:
    connect = plain if protocol == "PLAINTEXT" else over_tls
    extra = settings(limits__fetch_bytes=FETCH_BUDGET, cache__run_bytes=0, ledger__commit_timeout_ms=2000)
    gateway = gateway_factory(
        [*extra, *tls_settings, "--listen", "PLAINTEXT://127.0.0.1:0"], listen=f"{protocol}://127.0.0.1:0"
    )
    gateway.start()
    fill(gateway.ready.listeners[1].address)
    before = rss_bytes(gateway.pid)
    # All responses together would be 60 * 8 MiB.
    with connections(60, connect(gateway, small_window=True)) as mute:
        for sock in mute:
            sock.sendall(fetch_request(8 * MIB))
        held_to(gateway, before + FETCH_BUDGET + 64 * MIB, seconds=1.0)
        with ExitStack() as stack:
            hungry = RawConnection(stack.enter_context(connect(gateway)()))
            began, size = time.monotonic(), 0
            while size < MIB:
                # A fetch whose wait ended before there was memory for records has none.
                hungry.send(fetch_request(4 * MIB))
                response = hungry.read_frame()
                assert isinstance(response, bytes)
                size = len(response)
                held_to(gateway, before + FETCH_BUDGET + 64 * MIB, seconds=0.1)
                assert time.monotonic() - began < WAIT_S, "no records in all this time"
    assert refused(gateway, "memory") > 0


def test_unfinished_frames_hold_a_bounded_memory_and_delay_others_only_briefly(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(
        settings(limits__buffer_bytes=BUDGET, limits__frame_bytes=32 * MIB, limits__connections=500)
    )
    gateway.start()
    before = rss_bytes(gateway.pid)
    with connections(40, plain(gateway)) as slow, Healthy(gateway, plain(gateway)) as healthy:
        for sock in slow:
            # 20 of 32 MiB: 800 MiB in all.
            sock.settimeout(0.2)
            try:
                sock.sendall(struct.pack(">i", 32 * MIB) + bytes(20 * MIB))
            except OSError:
                continue
        held_to(gateway, before + 3 * BUDGET // 2, seconds=UNFINISHED_S)
        until(lambda: metric(gateway, "dragoman_buffer_bytes") < BUDGET)
    assert refused(gateway, "memory") > 0
    assert healthy.failure is None and healthy.longest_s < 3.0


def test_clients_that_trickle_bytes_are_closed_after_the_idle_time_and_hold_next_to_nothing(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(settings(limits__idle_ms=1500))
    gateway.start()
    before = rss_bytes(gateway.pid)
    with connections(200, plain(gateway)) as trickling, Healthy(gateway, plain(gateway)) as healthy:
        for sock in trickling:
            sock.sendall(struct.pack(">i", 100 * MIB))
        began = time.monotonic()
        while metric(gateway, "dragoman_connections") > 1:
            assert time.monotonic() - began < 15.0
            for sock in trickling:
                # Never silent for as long as the idle time.
                with suppress(OSError):
                    sock.send(b"\0")
            time.sleep(0.3)
        assert rss_bytes(gateway.pid) - before < 40 * MIB
    assert refused(gateway, "stalled") == 200
    assert healthy.failure is None and healthy.longest_s < 3.0


def test_a_large_request_over_a_slow_line_may_take_longer_than_the_idle_time(
    gateway_factory: GatewayFactory,
) -> None:
    gateway = gateway_factory(settings(limits__idle_ms=1000))
    gateway.start()
    # 60 KiB a second, where 16 are enough; a name of 32 KiB is as much as a client id may hold.
    body = struct.pack(">hhih", API_VERSIONS, 0, 7, -1) + bytes(180 * 1024)
    with plain(gateway)() as sock:
        sock.sendall(struct.pack(">i", len(body)))
        for at in range(0, len(body), 12 * 1024):
            sock.sendall(body[at : at + 12 * 1024])
            time.sleep(0.2)
        response = RawConnection(sock).read_frame()
    assert isinstance(response, bytes) and response[:4] == struct.pack(">i", 7)


def test_connections_of_one_address_are_bounded(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(settings(limits__address_connections=3))
    gateway.start()
    with connections(3, plain(gateway)) as first:
        until(lambda: metric(gateway, "dragoman_connections") == 3)
        with plain(gateway)() as further:
            assert RawConnection(further).is_closed_by_peer()
        first[0].close()
        until(lambda: metric(gateway, "dragoman_connections") == 2)
        with plain(gateway)() as next_one:
            connection = RawConnection(next_one)
            connection.send(request(API_VERSIONS, 0))
            assert isinstance(connection.read_frame(), bytes)
    assert refused(gateway, "too_many_from_address") == 1


def test_handshakes_that_do_not_end_count_as_connections(
    gateway_factory: GatewayFactory, tls_settings: Sequence[str]
) -> None:
    limits = settings(limits__connections=3, limits__tls_handshake_ms=1000)
    gateway = gateway_factory([*tls_settings, *limits], listen="SSL://127.0.0.1:0")
    gateway.start()
    with connections(3, plain(gateway)):
        time.sleep(0.2)
        with plain(gateway)() as further:
            assert RawConnection(further).is_closed_by_peer()
        # Their places are free again after the deadline.
        until(lambda: refused(gateway, "tls") == 3)
        with over_tls(gateway)() as sock:
            connection = RawConnection(sock)
            connection.send(request(API_VERSIONS, 0))
            assert isinstance(connection.read_frame(), bytes)


def test_connections_that_come_too_fast_wait_for_their_turn(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(settings(limits__address_connection_rate=10))
    gateway.start()
    began = time.monotonic()
    for _ in range(20):
        with plain(gateway)() as sock:
            connection = RawConnection(sock)
            connection.send(request(API_VERSIONS, 0))
            assert isinstance(connection.read_frame(), bytes)
    assert time.monotonic() - began > 0.8


def test_what_many_strangers_cause_is_logged_in_few_lines(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(settings(limits__address_connections=1))
    gateway.start()
    with plain(gateway)():
        until(lambda: metric(gateway, "dragoman_connections") == 1)
        for _ in range(100):
            with plain(gateway)() as sock:
                assert RawConnection(sock).is_closed_by_peer()
    assert refused(gateway, "too_many_from_address") == 100
    assert gateway.log_path.read_text().count("connection.turned_away") < 10
