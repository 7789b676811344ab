"""TLS of the client listeners: the context out of the settings, and its renewal.

TLS 1.2 and 1.3 (or 1.3 alone), without renegotiation and compression. A client certificate is checked
against `tls.ca` alone, never against the CAs of the machine.
"""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

import structlog

from gateway.config import check_readable, secret_of
from gateway.settings import ConfigError, Tls

log = structlog.get_logger()

_VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = {
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
OTHER_PROTOCOLS: Final[Mapping[str, str]] = {
    "http request": "a client that speaks HTTP, and this listener speaks TLS",
    "wrong version number": "a client that speaks no TLS (plain Kafka? set security.protocol=SSL)",
}
"""What OpenSSL says where a client came to the wrong listener, and what that means."""
_SOCKET: ContextVar[socket.socket | None] = ContextVar("tls_socket", default=None)
_CLIENT_AUTH: Final[Mapping[str, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class _Handshake(ssl.SSLObject):
    """Sends the alert of a handshake that fails: the event loop's TLS drops what OpenSSL would say last."""

    outgoing: ssl.MemoryBIO
    sock: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            alert = self.outgoing.read()
            if alert and self.sock is not None:
                # Before it on the socket is only the server's part of the handshake, which is short. Where it
                # is not sent yet, or the client is gone, the alert is lost as it was.
                with suppress(OSError):
                    self.sock.send(alert)
            raise
        self.sock = None


class AlertingContext(ssl.SSLContext):
    """A client whose handshake fails hears why, where it would else see the connection end."""

    sslobject_class = _Handshake

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(made, _Handshake):
            made.outgoing, made.sock = outgoing, _SOCKET.get()
        return made


def alert_by(sock: socket.socket) -> None:
    """Of the next TLS connection that this task begins: where its alerts go."""
    _SOCKET.set(sock)


class Certificates:
    """What TLS connections begin with: `context` is the newest that could be loaded."""

    def __init__(self, settings: Tls) -> None:
        """Raises ConfigError."""
        self._settings = settings
        self.context = build_context(settings)

    def reload(self) -> None:
        """Read the files again. What cannot be used is logged, and the context before it stays."""
        try:
            self.context = build_context(self._settings)
        except ConfigError as error:
            log.error("tls.reload_failed", reason=str(error), kept="the certificates loaded before")
            return
        log.info("tls.reloaded", certificate=self._settings.certificate)


def build_context(settings: Tls) -> ssl.SSLContext:
    """A server's context. Raises ConfigError that names the setting, and never what a file holds."""
    if not settings.certificate:
        raise ConfigError("an SSL:// listener needs tls.certificate, a PEM file (and tls.key)")
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_certificate(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_ca(context, settings.ca)
    return context


def _load_certificate(context: ssl.SSLContext, settings: Tls) -> None:
    password = secret_of(settings.key_password, settings.key_password_file, "tls.key_password_file")
    is_needed = False

    def give() -> bytes:
        # Without this OpenSSL would ask at the terminal, and wait.
        nonlocal is_needed
        is_needed = True
        return password

    for setting, path in (("tls.certificate", settings.certificate), ("tls.key", settings.key)):
        if path:
            check_readable(setting, path)
    try:
        context.load_cert_chain(settings.certificate, settings.key or None, give)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(_certificate_reason(settings, error, is_needed, bool(password))) from None
    except OSError as error:
        raise ConfigError(f"tls.certificate = {settings.certificate}: {error.strerror}") from error


def _certificate_reason(settings: Tls, error: Exception, needs_password: bool, has_password: bool) -> str:
    key = f"tls.key = {settings.key}" if settings.key else f"tls.certificate = {settings.certificate}"
    if needs_password and not has_password:
        return f"{key}: the private key has a password; set tls.key_password_file"
    if needs_password:
        return f"{key}: the password (tls.key_password or tls.key_password_file) is wrong for the private key"
    reason = _reason(error)
    if reason == "key values mismatch":
        return f"{key} is not the private key of tls.certificate = {settings.certificate}"
    return f"tls.certificate = {settings.certificate}, {key}: not a PEM certificate with its key ({reason})"


def _load_ca(context: ssl.SSLContext, path: str) -> None:
    check_readable("tls.ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"tls.ca = {path}: no PEM certificates ({_reason(error)})") from None
    # With these a client with several certificates knows which to send.
    if not context.get_ca_certs():
        raise ConfigError(f"tls.ca = {path}: none of its certificates is a CA")


def _reason(error: BaseException) -> str:
    """OpenSSL's name of what is wrong, in lower case."""
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else type(error).__name__


def refusal(error: BaseException) -> str:
    """Why a handshake failed, for the log: a reason's name, nothing that the client has sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"client certificate: {error.verify_message}"
    if isinstance(error, ConnectionAbortedError):
        return "the handshake took too long"
    if isinstance(error, ConnectionError):
        return "the client closed the connection"
    reason = _reason(error)
    return OTHER_PROTOCOLS.get(reason, reason)
