"""Clients over TLS: which are accepted, which addresses they get, and certificates that change."""

import os
import signal
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError

from gateway.wire.apis import ApiKey
from gateway.wire.messages import codec
from gateway.wire.messages.generated.describe_cluster import DescribeClusterRequest
from gateway.wire.messages.generated.metadata import MetadataRequest
from tests.support.certificates import Authority, Issued
from tests.support.gateway import Gateway, GatewayFactory, GatewayNotReady
from tests.support.raw import RawConnection, request

WAIT_S = 30.0
REFUSED_S = 3.0
API_VERSIONS = 18
FETCH_SESSION_ID_NOT_FOUND = 70
TOPIC = "over-tls"
ANY_PORT = "SSL://127.0.0.1:0"
PASSWORD = "correct-horse-battery"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Issued:
    return authority.server()


def tls_options(server: Issued, *more: str) -> list[str]:
    settings = [f"tls.certificate={server.certificate}", f"tls.key={server.key}", *more]
    return [word for setting in settings for word in ("--set", setting)]


def mutual(server: Issued, authority: Authority, client_auth: str = "required") -> list[str]:
    return tls_options(server, f"tls.ca={authority.file}", f"tls.client_auth={client_auth}")


def started(factory: GatewayFactory, options: list[str], **more: Any) -> Gateway:
    gateway = factory(options, listen=ANY_PORT, **more)
    gateway.start()
    return gateway


def confluent(gateway: Gateway, ca: Path, client: Issued | None = None) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(ca),
    }
    if client is not None:
        settings["ssl.certificate.location"] = str(client.certificate)
        settings["ssl.key.location"] = str(client.key)
    return settings


def kafka_python(gateway: Gateway, ca: Path, client: Issued | None = None) -> dict[str, Any]:
    own = {"ssl_certfile": str(client.certificate), "ssl_keyfile": str(client.key)} if client else {}
    return {
        "bootstrap_servers": gateway.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(ca),
        **own,
    }


def confluent_round_trip(settings: dict[str, Any], values: list[bytes]) -> list[bytes]:
    """Produce, then read everything of the topic's partition 0 from the beginning."""
    producer = Producer({**settings, "message.max.bytes": 20_000_000, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**settings, "group.id": "never-joined", "enable.auto.commit": False})
    received: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + WAIT_S
        while len(received) < len(values) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None, message.error()
                received.append(message.value() or b"")
    finally:
        consumer.close()
    return received


def kafka_python_round_trip(settings: dict[str, Any], values: list[bytes]) -> list[bytes]:
    producer = KafkaProducer(**settings, acks="all")
    for value in values:
        producer.send(TOPIC, value, partition=0).get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(**settings, consumer_timeout_ms=int(WAIT_S * 1000))
    try:
        partition = PythonPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [next(consumer).value for _ in values]
    finally:
        consumer.close()


ROUND_TRIPS = [
    pytest.param(confluent, confluent_round_trip, id="confluent"),
    pytest.param(kafka_python, kafka_python_round_trip, id="kafka-python"),
]
Settings = Callable[..., dict[str, Any]]
RoundTrip = Callable[[dict[str, Any], list[bytes]], list[bytes]]


def is_refused_by_both(gateway: Gateway, ca: Path, client: Issued | None = None) -> bool:
    """Whether neither client library comes as far as metadata."""
    for attempt in (confluent_sees_metadata, kafka_python_sees_metadata):
        if attempt(gateway, ca, client):
            return False
    return True


def confluent_sees_metadata(
    gateway: Gateway, ca: Path, client: Issued | None, within_s: float = REFUSED_S
) -> bool:
    try:
        AdminClient({**confluent(gateway, ca, client), "log_level": 0}).list_topics(timeout=within_s)
    except KafkaException:
        return False
    return True


def kafka_python_sees_metadata(gateway: Gateway, ca: Path, client: Issued | None) -> bool:
    try:
        KafkaConsumer(**kafka_python(gateway, ca, client), bootstrap_timeout_ms=int(REFUSED_S * 1000)).close()
    except (KafkaError, ssl.SSLError):
        return False
    return True


@contextmanager
def tls_socket(gateway: Gateway, client: Issued | None = None, **options: Any) -> Iterator[ssl.SSLSocket]:
    """A connection that believes every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for name, value in options.items():
        setattr(context, name, value)
    with socket.create_connection((gateway.host, gateway.port), timeout=WAIT_S) as sock:
        with context.wrap_socket(sock) as wrapped:
            yield wrapped


def serial_shown(gateway: Gateway) -> int:
    with tls_socket(gateway) as sock:
        certificate = sock.getpeercert(binary_form=True)
        assert certificate is not None
        return x509.load_der_x509_certificate(certificate).serial_number


def is_answered(sock: ssl.SSLSocket) -> bool:
    """Whether an ApiVersions is answered on this connection."""
    try:
        sock.sendall(request(API_VERSIONS, 0, correlation_id=7))
        return struct.unpack(">i", sock.recv(8)[4:8]) == (7,)
    except (OSError, struct.error):
        return False


def reload(gateway: Gateway, event: str) -> str:
    """Send SIGHUP and wait until the log says that it was handled. Returns the line."""
    before = len(gateway.log_path.read_bytes())
    os.kill(gateway.pid, signal.SIGHUP)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for line in gateway.log_path.read_bytes()[before:].decode().splitlines():
            if event in line:
                return line
        time.sleep(0.02)
    raise AssertionError(f"no {event} in the log")


@pytest.mark.parametrize(("settings", "round_trip"), ROUND_TRIPS)
def test_records_go_over_tls_and_come_back(
    gateway_factory: GatewayFactory,
    authority: Authority,
    server: Issued,
    settings: Settings,
    round_trip: RoundTrip,
) -> None:
    gateway = started(gateway_factory, tls_options(server))
    values = [b"small", os.urandom(900_000), b"after"]
    assert round_trip(settings(gateway, authority.file), values) == values


def test_large_responses_over_tls_arrive_whole(
    gateway_factory: GatewayFactory, authority: Authority, server: Issued
) -> None:
    gateway = started(gateway_factory, [*tls_options(server), "--set", "broker.message.max.bytes=20000000"])
    values = [os.urandom(8_000_000) for _ in range(3)]
    assert confluent_round_trip(confluent(gateway, authority.file), values) == values


@pytest.mark.parametrize(("settings", "round_trip"), ROUND_TRIPS)
def test_a_client_with_a_certificate_is_let_in_where_one_is_required(
    gateway_factory: GatewayFactory,
    authority: Authority,
    server: Issued,
    settings: Settings,
    round_trip: RoundTrip,
) -> None:
    gateway = started(gateway_factory, mutual(server, authority))
    client = authority.client()
    assert round_trip(settings(gateway, authority.file, client), [b"signed"]) == [b"signed"]


def test_a_client_without_certificate_or_with_one_of_another_ca_is_refused_where_one_is_required(
    gateway_factory: GatewayFactory, tmp_path: Path, authority: Authority, server: Issued
) -> None:
    gateway = started(gateway_factory, mutual(server, authority))
    stranger = Authority(tmp_path, "stranger").client()
    assert is_refused_by_both(gateway, authority.file)
    assert is_refused_by_both(gateway, authority.file, stranger)
    assert confluent_sees_metadata(gateway, authority.file, authority.client(), WAIT_S)


def fetch_session(sock: ssl.SSLSocket, session_id: int, epoch: int) -> tuple[int, int]:
    """(error code, session id) of a Fetch (version 7) of partition 0; a full one at epoch 0."""
    body = struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, session_id, epoch)
    if epoch == 0:
        partition = struct.pack(">iqqi", 0, 0, -1, 1 << 20)
        body += struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", 1) + partition
    else:
        body += struct.pack(">i", 0)
    connection = RawConnection(sock)
    connection.send(request(ApiKey.FETCH, 7, body + struct.pack(">i", 0)))
    response = connection.read_frame()
    assert isinstance(response, bytes)
    error, session = struct.unpack_from(">hi", response, 8)
    return error, session


def test_who_shows_another_certificate_is_somebody_else(
    gateway_factory: GatewayFactory, authority: Authority, server: Issued
) -> None:
    gateway = started(gateway_factory, mutual(server, authority, "optional"))
    first, second = authority.client("first"), authority.client("second")
    with tls_socket(gateway, first) as sock:
        error, session = fetch_session(sock, 0, 0)
        assert error == 0 and session != 0
    for other in (second, None):
        with tls_socket(gateway, other) as sock:
            assert fetch_session(sock, session, 1)[0] == FETCH_SESSION_ID_NOT_FOUND
    with tls_socket(gateway, first) as sock:
        assert fetch_session(sock, session, 1) == (0, session)


def test_an_optional_certificate_may_be_left_out_but_not_be_of_another_ca(
    gateway_factory: GatewayFactory, tmp_path: Path, authority: Authority, server: Issued
) -> None:
    gateway = started(gateway_factory, mutual(server, authority, "optional"))
    stranger = Authority(tmp_path, "stranger").client()
    assert confluent_sees_metadata(gateway, authority.file, None, WAIT_S)
    assert confluent_sees_metadata(gateway, authority.file, authority.client(), WAIT_S)
    assert is_refused_by_both(gateway, authority.file, stranger)


def test_a_client_that_trusts_another_ca_does_not_connect(
    gateway_factory: GatewayFactory, tmp_path: Path, server: Issued
) -> None:
    gateway = started(gateway_factory, tls_options(server))
    assert is_refused_by_both(gateway, Authority(tmp_path, "stranger").file)


def test_tls_1_2_is_spoken_unless_1_3_is_required(gateway_factory: GatewayFactory, server: Issued) -> None:
    old: dict[str, Any] = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    both = started(gateway_factory, tls_options(server))
    with tls_socket(both, **old) as sock:
        assert sock.version() == "TLSv1.2" and is_answered(sock)
    with tls_socket(both) as sock:
        assert sock.version() == "TLSv1.3" and is_answered(sock)
    only_new = started(gateway_factory, tls_options(server, "tls.min_version=1.3"))
    with pytest.raises(ssl.SSLError):
        with tls_socket(only_new, **old):
            pass


def test_new_connections_get_the_new_certificate_and_old_ones_live_on(
    gateway_factory: GatewayFactory, authority: Authority, server: Issued
) -> None:
    gateway = started(gateway_factory, tls_options(server))
    with tls_socket(gateway) as old:
        assert serial_shown(gateway) == server.serial
        renewed = authority.server("server")
        assert renewed.certificate == server.certificate and renewed.serial != server.serial
        reload(gateway, "tls.reloaded")
        assert serial_shown(gateway) == renewed.serial
        assert is_answered(old)


@pytest.mark.parametrize("broken", ["no PEM", "key of another certificate", "gone"])
def test_a_broken_file_keeps_the_old_certificate_and_is_reported_in_one_sentence(
    gateway_factory: GatewayFactory, authority: Authority, server: Issued, broken: str
) -> None:
    gateway = started(gateway_factory, tls_options(server))
    match broken:
        case "no PEM":
            server.certificate.write_text("nonsense")
        case "key of another certificate":
            server.key.write_bytes(authority.server("another").key.read_bytes())
        case "gone":
            server.certificate.unlink()
    line = reload(gateway, "tls.reload_failed")
    assert "tls.certificate" in line
    assert serial_shown(gateway) == server.serial
    assert gateway.log_path.read_text().count("tls.reload_failed") == 1


def test_a_ca_taken_away_by_a_reload_lets_its_clients_in_no_more(
    gateway_factory: GatewayFactory, tmp_path: Path, authority: Authority, server: Issued
) -> None:
    gateway = started(gateway_factory, mutual(server, authority))
    client = authority.client()
    assert confluent_sees_metadata(gateway, authority.file, client, WAIT_S)
    trusted = authority.file.read_bytes()
    authority.file.write_bytes(Authority(tmp_path, "other").file.read_bytes())
    reload(gateway, "tls.reloaded")
    (tmp_path / "trusted.pem").write_bytes(trusted)
    assert is_refused_by_both(gateway, tmp_path / "trusted.pem", client)


@pytest.mark.parametrize("source", ["file", "environment"])
def test_the_password_of_the_key_comes_from_file_or_environment_and_is_never_shown(
    gateway_factory: GatewayFactory, tmp_path: Path, authority: Authority, source: str
) -> None:
    server = authority.server("locked", password=PASSWORD.encode())
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    from_file = [f"tls.key_password_file={tmp_path / 'password'}"] if source == "file" else []
    environment = {} if source == "file" else {"DRAGOMAN_TLS_KEY_PASSWORD": PASSWORD}
    gateway = started(
        gateway_factory, [*tls_options(server, *from_file), "--set", "log.level=debug"], env=environment
    )
    assert serial_shown(gateway) == server.serial
    reload(gateway, "tls.reloaded")
    with tls_socket(gateway) as sock:
        sock.sendall(struct.pack(">i", -5))
        assert sock.recv(1) == b""
    log = gateway.log_path.read_text()
    assert "connection.refused" in log
    for secret in (PASSWORD, "BEGIN", *server.certificate.read_text().splitlines()[1:3]):
        assert secret not in log


def test_without_its_password_the_key_is_refused_at_once(
    gateway_factory: GatewayFactory, authority: Authority
) -> None:
    server = authority.server("locked", password=PASSWORD.encode())
    with pytest.raises(GatewayNotReady, match=r"tls\.key_password_file") as refusal:
        started(gateway_factory, tls_options(server))
    assert refusal.value.exit_code == 2


def test_a_wrong_password_is_refused_and_not_repeated(
    gateway_factory: GatewayFactory, authority: Authority
) -> None:
    server = authority.server("locked", password=PASSWORD.encode())
    with pytest.raises(GatewayNotReady, match="is wrong") as refusal:
        started(gateway_factory, tls_options(server), env={"DRAGOMAN_TLS_KEY_PASSWORD": "tr0ub4dor"})
    assert refusal.value.exit_code == 2
    assert "tr0ub4dor" not in refusal.value.log


def test_each_listener_advertises_its_own_address(
    gateway_factory: GatewayFactory, authority: Authority, server: Issued
) -> None:
    second = ["--listen", "PLAINTEXT://0.0.0.0:0", "--listen", "PLAINTEXT://[::1]:0"]
    advertised = ["--advertise", "localhost:0", "--advertise", "inside.example:1", "--advertise", "[::1]:0"]
    gateway = started(gateway_factory, [*tls_options(server), *second, *advertised])
    over_tls, inside, over_v6 = gateway.ready.listeners
    with tls_socket(gateway) as sock:
        assert named_by(sock) == ("localhost", over_tls.port)
    for listener, host, expected in (
        (inside, "127.0.0.1", ("inside.example", 1)),
        (over_v6, "::1", ("::1", over_v6.port)),
    ):
        with socket.create_connection((host, listener.port), timeout=WAIT_S) as sock:
            assert named_by(sock) == expected
    log = gateway.log_path.read_text()
    assert log.count("listener.plaintext") == 1 and "PLAINTEXT://0.0.0.0:0" in log


def named_by(sock: socket.socket) -> tuple[str, int]:
    """The one broker that Metadata and DescribeCluster name; both must agree."""
    by_metadata = response_to(sock, ApiKey.METADATA, 1, MetadataRequest(topics=[]), header_bytes=4)
    by_cluster = response_to(sock, ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest(), header_bytes=5)
    named = {(broker.host, broker.port) for broker in (*by_metadata.brokers, *by_cluster.brokers)}
    assert len(named) == 1, named
    host, port = named.pop()
    return str(host), int(port)


def response_to(sock: socket.socket, key: ApiKey, version: int, message: Any, header_bytes: int) -> Any:
    body = codec.encode_request(key, version, message)
    sock.sendall(request(key, version, body, flexible=header_bytes == 5))
    response = RawConnection(sock).read_frame()
    assert isinstance(response, bytes), response
    return codec.decode_response(key, version, memoryview(response)[header_bytes:])


def test_a_loopback_listener_warns_of_nothing(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory()
    gateway.start()
    assert "listener.plaintext" not in gateway.log_path.read_text()


@pytest.mark.serial
def test_a_client_that_sends_nothing_before_tls_is_closed_in_time(
    gateway_factory: GatewayFactory, server: Issued
) -> None:
    gateway = started(gateway_factory, tls_options(server, "limits.tls_handshake_ms=500"))
    began = time.monotonic()
    with socket.create_connection((gateway.host, gateway.port), timeout=WAIT_S) as silent:
        with socket.create_connection((gateway.host, gateway.port), timeout=WAIT_S) as trickling:
            trickling.sendall(b"\x16\x03\x01\x02\x00")
            assert not silent.recv(1)
            assert not trickling.recv(1)
    assert 0.4 < time.monotonic() - began < 5.0
    assert serial_shown(gateway) == server.serial


def test_plaintext_to_a_tls_listener_is_closed_and_harms_no_other_client(
    gateway_factory: GatewayFactory, server: Issued
) -> None:
    gateway = started(gateway_factory, tls_options(server))
    with socket.create_connection((gateway.host, gateway.port), timeout=WAIT_S) as lost:
        lost.sendall(request(API_VERSIONS, 0) * 100)
        with pytest.raises(OSError):
            while lost.recv(100):
                pass
            raise ConnectionResetError
    with tls_socket(gateway) as sock:
        assert is_answered(sock)
    assert "Traceback" not in gateway.log_path.read_text()


def test_a_stop_drains_tls_connections(gateway_factory: GatewayFactory, server: Issued) -> None:
    gateway = started(gateway_factory, tls_options(server))
    with tls_socket(gateway) as sock:
        assert is_answered(sock)
        # What the response holds beyond its head.
        sock.settimeout(WAIT_S)
        os.kill(gateway.pid, signal.SIGTERM)
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            while sock.recv(4096):
                pass
            raise EOFError
    assert gateway.wait_for_exit() == 0
