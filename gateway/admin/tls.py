"""TLS of the admin address: the gateway's certificate, and client certificates of CAs of its own."""

import msgspec

from gateway.security.principals import parse_principals
from gateway.security.tls import Certificates
from gateway.settings import ConfigError, Settings


def admin_certificates(settings: Settings) -> Certificates | None:
    """None without `admin.tls`. A client certificate is requested where one may open the console, and needed
    for nothing else: probes have none. Raises ConfigError."""
    admin = settings.admin
    principals = parse_principals(admin.principals, "admin.principals")
    if not admin.tls:
        if principals:
            raise ConfigError("admin.principals needs admin.tls: without it there are no client certificates")
        return None
    ca = admin.ca or settings.tls.ca
    if principals and not ca:
        raise ConfigError("admin.principals needs admin.ca or tls.ca, the CAs of client certificates")
    auth = "optional" if principals else "none"
    return Certificates(msgspec.structs.replace(settings.tls, ca=ca, client_auth=auth))
