"""TLS as a client: how the commands reach an SSL:// listener."""

import os
import ssl
from pathlib import Path
from typing import Final

from gateway.addresses import PLAINTEXT, PROTOCOLS, SSL
from gateway.cli.contact import Contact
from gateway.settings import ConfigError

PASSWORD_VARIABLE: Final = "DRAGOMAN_TLS_KEY_PASSWORD"
"""The variable that `serve` reads too. Every user of the machine could see a password on a command line."""


def client_context(contact: Contact) -> ssl.SSLContext | None:
    """TLS 1.2 or newer, the name in the certificate checked, against the CAs of the machine unless one is
    given; None for PLAINTEXT. ConfigError names the flag."""
    if contact.protocol not in ("", *PROTOCOLS):
        raise ConfigError(f"--bootstrap {contact.bootstrap}: expected HOST:PORT or SSL://HOST:PORT")
    if contact.protocol != SSL and not contact.names_tls_files:
        return None
    if contact.protocol == PLAINTEXT:
        raise ConfigError(f"--bootstrap {contact.bootstrap}: --tls-... files need an SSL:// listener")
    if contact.tls_key and not contact.tls_cert:
        raise ConfigError("--tls-key needs --tls-cert, the certificate that it belongs to")
    _check_readable("--tls-ca", contact.tls_ca)
    _check_readable("--tls-cert", contact.tls_cert)
    _check_readable("--tls-key", contact.tls_key)
    try:
        context = ssl.create_default_context(cafile=contact.tls_ca or None)
    except ssl.SSLError as error:
        raise ConfigError(f"--tls-ca {contact.tls_ca}: no PEM certificates ({_word(error)})") from None
    # As clients of Kafka do: since Python 3.13 it would refuse CAs without a keyUsage extension.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if contact.tls_cert:
        _load_certificate(context, contact)
    return context


def reason_of(error: OSError) -> str:
    """Why a connection failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {str(error.reason or 'the handshake was cut off').replace('_', ' ').lower()}"
    return error.strerror or str(error) or "timed out"


def hint_for(error: OSError) -> str:
    """The one remedy that fits."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "mismatch" in error.verify_message:
            return "name it by a name or address that its certificate has"
        if "expired" in error.verify_message or "not yet valid" in error.verify_message:
            return "renew it, or check the clock of this machine"
        return "is --tls-ca the CA that signed it?"
    if isinstance(error, ssl.SSLError) and "CERTIFICATE" in str(error.reason):
        return "a client certificate is given with --tls-cert"
    if isinstance(error, ssl.SSLError | ConnectionResetError):
        return "is that an SSL:// listener? Without TLS leave SSL:// and --tls-... out"
    return "is a gateway there? Name it with --bootstrap HOST:PORT"


def _load_certificate(context: ssl.SSLContext, contact: Contact) -> None:
    password = os.environ.get(PASSWORD_VARIABLE, "")
    try:
        # Without a password here OpenSSL would prompt on the terminal, and wait.
        context.load_cert_chain(contact.tls_cert, contact.tls_key or None, lambda: password)
    except (ssl.SSLError, ValueError) as error:
        key = f", --tls-key {contact.tls_key}" if contact.tls_key else ""
        raise ConfigError(
            f"--tls-cert {contact.tls_cert}{key}: not a PEM certificate with its private key, or the key has "
            f"another password than {PASSWORD_VARIABLE} ({_word(error)})"
        ) from None


def _word(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else type(error).__name__


def _check_readable(flag: str, path: str) -> None:
    if not path:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"{flag} {path}: cannot read the file: {error.strerror}") from error
