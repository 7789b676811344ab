"""Certificates for tests: a CA of their own, what it has signed, as PEM files."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True, slots=True)
class Issued:
    """Files of one certificate, and its serial number."""

    certificate: Path
    key: Path
    serial: int


class Authority:
    """A CA that writes what it issues below `directory`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._name = name
        self._authority = trustme.CA(organization_name=f"Dragoman test {name}")
        self.file = directory / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def server(self, name: str = "server", *hosts: str, password: bytes | None = None) -> Issued:
        """For the addresses of loopback, and `hosts`. The key is encrypted when there is a password."""
        return self._issue(name, password, *(hosts or ("127.0.0.1", "::1", "localhost")))

    def client(self, name: str = "client") -> Issued:
        return self._issue(name, None, f"{name}@clients.example")

    def _issue(self, name: str, password: bytes | None, *identities: str) -> Issued:
        leaf = self._authority.issue_cert(*identities)
        certificate, key = (self._directory / f"{self._name}-{name}{end}" for end in (".pem", ".key"))
        certificate.write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
        pem = leaf.private_key_pem.bytes()
        if password is not None:
            loaded = load_pem_private_key(pem, None)
            encryption = BestAvailableEncryption(password)
            pem = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        key.write_bytes(pem)
        return Issued(certificate, key, serial_of(certificate))


def serial_of(certificate: Path) -> int:
    return x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number


def principal_of(issued: Issued) -> str:
    """As listeners of the gateway name a client with this certificate."""
    loaded = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    return f"User:{loaded.subject.rfc4514_string()}"
