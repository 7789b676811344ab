"""TLS of a connection to a store: PEM files, and what is wrong with them."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from ledger.errors import StoreUnavailable

_WRONG: Final = MappingProxyType({"KEY_VALUES_MISMATCH": "its key belongs to another certificate"})


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. Without `ca` the certificates that the system trusts; certificate and key of the client
    only where the server asks for them."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class TlsBytes(NamedTuple):
    roots: bytes | None
    """None: those of the library, where the system has no bundle."""
    certificate: bytes | None
    key: bytes | None


def read_tls(tls: Tls, store: str) -> TlsBytes:
    """StoreUnavailable with one sentence if the files cannot be used: gRPC would report that only when it
    connects, and without a reason."""
    if (tls.certificate is None) != (tls.key is None):
        raise StoreUnavailable(
            f"{store}: a client certificate and its key are two settings, and only one of them is set"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is not None:
        with _usable(tls.ca, store, "CA bundle"):
            context.load_verify_locations(tls.ca)
    if tls.certificate is not None:
        with _usable(tls.certificate, store, "client certificate"):
            # Without a password OpenSSL asks on the terminal for that of an encrypted key.
            context.load_cert_chain(tls.certificate, tls.key, password="")
    system = ssl.get_default_verify_paths().cafile
    ca = tls.ca or (Path(system) if system is not None else None)
    with _usable(ca, store, "CA bundle"):
        return TlsBytes(_bytes(ca), _bytes(tls.certificate), _bytes(tls.key))


@contextmanager
def _usable(path: Path | None, store: str, what: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        why = _WRONG.get(error.reason or "", "it is no such PEM file, or its key is encrypted")
        raise StoreUnavailable(f"{store}: the {what} {path} cannot be used: {why}") from error
    except OSError as error:
        raise StoreUnavailable(
            f"{store}: the {what} {path} or its key cannot be read: {error.strerror}; correct its path or "
            "rights"
        ) from error


def _bytes(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None
