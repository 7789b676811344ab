"""The pages of a gateway's admin address, as commands read them."""

import http.client
from dataclasses import replace
from typing import Final

from gateway.addresses import Address, parse_address
from gateway.cli.client import ClientError
from gateway.cli.contact import Contact
from gateway.cli.tls import client_context
from gateway.settings import ConfigError

HTTPS: Final = "https"
TIMEOUT_S: Final = 5.0
MAX_PAGE_BYTES: Final = 32 << 20


def admin_page(admin: str, path: str, contact: Contact) -> tuple[int, bytes]:
    """Status and body of a page. `admin` is HOST:PORT, or https://HOST:PORT, which is reached with the PEM
    files of `contact`. ConfigError, ClientError."""
    scheme, _, place = admin.rpartition("://")
    if scheme not in ("", HTTPS):
        raise ConfigError(f"--admin {admin}: expected HOST:PORT, or https://HOST:PORT")
    address = parse_address(place, "--admin")
    connection = _connection(address, replace(contact, bootstrap=f"SSL://{place}") if scheme else None)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(MAX_PAGE_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise ClientError(f"the admin address {admin} did not respond to {path}: {reason}") from error
    finally:
        connection.close()
    if len(body) > MAX_PAGE_BYTES:
        raise ClientError(f"{path} of the admin address {admin} has more than {MAX_PAGE_BYTES} bytes")
    return response.status, body


def _connection(address: Address, contact: Contact | None) -> http.client.HTTPConnection:
    """Over TLS if there is a contact."""
    if contact is None:
        return http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
    context = client_context(contact)
    return http.client.HTTPSConnection(address.host, address.port, timeout=TIMEOUT_S, context=context)
