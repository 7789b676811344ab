"""How a job reaches a gateway's internal listener: a Unix socket, TLS with a client certificate, or a socket
that it has inherited."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

UNIX_PATH_BYTES: Final = 103 if os.uname().sysname == "Darwin" else 107
"""What the path of a Unix socket may have: sun_path without its last zero."""
_DESCRIPTORS: Final = Path("/proc/self/fd")


class Unreachable(Exception):
    """There is no connection to the gateway; one sentence says why and what helps."""


class Link(Protocol):
    """A way to the gateway."""

    @property
    def connects_again(self) -> bool:
        """Whether another connection can be made when one is lost."""
        ...

    def connect(self, timeout_s: float) -> socket.socket:
        """Raises Unreachable."""
        ...


@dataclass(frozen=True, slots=True)
class UnixLink:
    """The socket `internal.sock` in a data directory, or the one of `internal.socket`."""

    path: Path
    connects_again: bool = True

    def connect(self, timeout_s: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            with _short(self.path) as name:
                sock.connect(name)
        except OSError as error:
            sock.close()
            raise Unreachable(f"{self.path}: {_why_not(error)}") from error
        return sock


@dataclass(frozen=True, slots=True)
class TlsLink:
    """The TLS listener of `internal.listen`; the paths are PEM files."""

    host: str
    port: int
    ca: Path
    certificate: Path
    key: Path
    connects_again: bool = True

    def connect(self, timeout_s: float) -> socket.socket:
        place = f"{self.host}:{self.port}"
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            # As clients of Kafka do: since Python 3.13 it would refuse CAs without a keyUsage extension.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.load_cert_chain(str(self.certificate), str(self.key))
        except OSError as error:
            raise Unreachable(
                f"{self.ca}, {self.certificate}, {self.key}: no PEM files of a CA, a certificate and its key "
                f"({error.strerror or error})"
            ) from error
        try:
            plain = socket.create_connection((self.host, self.port), timeout_s)
        except OSError as error:
            raise Unreachable(f"{place}: {_why_not(error)}") from error
        try:
            return context.wrap_socket(plain, server_hostname=self.host)
        except OSError as error:
            plain.close()
            raise Unreachable(f"{place}: no TLS connection ({error})") from error


@dataclass(frozen=True, slots=True)
class PlainLink:
    """A listener without encryption, which exists on loopback alone."""

    host: str
    port: int
    connects_again: bool = True

    def connect(self, timeout_s: float) -> socket.socket:
        try:
            return socket.create_connection((self.host, self.port), timeout_s)
        except OSError as error:
            raise Unreachable(f"{self.host}:{self.port}: {_why_not(error)}") from error


class InheritedLink:
    """A connected socket that the gateway has handed to its child process: there is no second one."""

    connects_again = False

    def __init__(self, descriptor: int) -> None:
        self._sock: socket.socket | None = socket.socket(fileno=descriptor)

    def connect(self, timeout_s: float) -> socket.socket:
        sock, self._sock = self._sock, None
        if sock is None:
            raise Unreachable("the gateway that has started this process has closed their connection")
        sock.settimeout(timeout_s)
        return sock


def _why_not(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such socket; does a gateway run with this data directory?"
        case ConnectionRefusedError():
            return "nothing listens there; start the gateway"
        case PermissionError():
            return "this user may not connect; run the job as the user of the gateway"
        case TimeoutError():
            return "no connection within its time; is the gateway overloaded?"
    return f"no connection ({error.strerror or error})"


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """The path of a socket as the kernel takes it. One that is too long goes by an open directory."""
    whole = os.fspath(path.absolute())
    if len(os.fsencode(whole)) <= UNIX_PATH_BYTES:
        yield whole
        return
    if not _DESCRIPTORS.is_dir():
        raise Unreachable(
            f"{path} has {len(os.fsencode(whole))} bytes, and the path of a Unix socket may have "
            f"{UNIX_PATH_BYTES}: choose a shorter one with internal.socket"
        )
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_DESCRIPTORS / str(directory) / path.name)
    finally:
        with suppress(OSError):
            os.close(directory)
