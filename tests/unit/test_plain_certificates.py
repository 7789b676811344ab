"""Certificates that lack extensions which RFC 5280 wants, as many a CA of one's own makes them: trusted by
the commands and by jobs as they are by clients of Kafka, with every Python."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gateway.cli.contact import Contact
from gateway.cli.tls import client_context
from pipeline.links import TlsLink

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    ca: Path
    certificate: Path
    key: Path


def signed(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """With no extension but the one without which nothing trusts it."""
    now = datetime.datetime.now(datetime.UTC)
    is_ca = name == issuer
    extension = (
        x509.BasicConstraints(ca=True, path_length=None)
        if is_ca
        else x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    )
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(extension, critical=is_ca)
        .sign(issuer_key, hashes.SHA256())
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    files = [tmp_path / name for name in ("ca.pem", "server.pem", "server.key")]
    files[0].write_bytes(signed("ca", ca_key, "ca", ca_key).public_bytes(Encoding.PEM))
    files[1].write_bytes(signed("server", key, "ca", ca_key).public_bytes(Encoding.PEM))
    files[2].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[2])
    with socket.create_server((HOST, 0)) as listening:
        listening.settimeout(10.0)

        def serve() -> None:
            accepted, _ = listening.accept()
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.sendall(b"trusted")

        thread = threading.Thread(target=serve)
        thread.start()
        yield Server(listening.getsockname()[1], *files)
        thread.join()


def test_commands_trust_what_clients_of_kafka_trust(server: Server) -> None:
    context = client_context(Contact(f"SSL://{HOST}:{server.port}", tls_ca=str(server.ca)))
    assert context is not None
    with socket.create_connection((HOST, server.port), 10.0) as plain:
        assert context.wrap_socket(plain, server_hostname=HOST).recv(100) == b"trusted"


def test_jobs_trust_what_clients_of_kafka_trust(server: Server) -> None:
    link = TlsLink(HOST, server.port, server.ca, server.certificate, server.key)
    with link.connect(10.0) as connection:
        assert connection.recv(100) == b"trusted"
