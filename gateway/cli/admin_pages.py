"""The pages of a gateway's admin address, as commands read them."""

import http.client
from typing import Final

from gateway.addresses import parse_address
from gateway.cli.client import ClientError

TIMEOUT_S: Final = 5.0
MAX_PAGE_BYTES: Final = 32 << 20


def admin_page(admin: str, path: str) -> tuple[int, bytes]:
    """Status and body of a page. `admin` is HOST:PORT. ConfigError, ClientError."""
    address = parse_address(admin, "--admin")
    connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
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
