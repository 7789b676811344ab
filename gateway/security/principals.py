"""The principal of a connection: the subject of its client certificate, else `User:ANONYMOUS`.

The name is the subject as RFC 2253 writes it, the most specific part first, as Kafka's default principal
builder takes it: `User:CN=app,OU=payments,O=Example`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.settings import ConfigError

ANONYMOUS: Final = "User:ANONYMOUS"

_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""RFC 2253, section 2.3; other attributes keep the name that OpenSSL gives them."""
_ESCAPED: Final = frozenset(',+"\\<>;')


def principal_of(certificate: Mapping[str, Any] | None) -> str:
    """The principal of a verified client certificate, as `SSLSocket.getpeercert` describes it; without
    one, or with an empty subject, `User:ANONYMOUS`."""
    subject = certificate.get("subject", ()) if certificate else ()
    return f"User:{distinguished_name(subject)}" if subject else ANONYMOUS


def parse_principals(text: str, setting: str) -> frozenset[str]:
    """Of a list with semicolons. Raises ConfigError, which names the setting."""
    named = frozenset(part.strip() for part in text.split(";") if part.strip())
    wrong = next((name for name in sorted(named) if not name.startswith("User:")), None)
    if wrong is not None:
        raise ConfigError(
            f"{setting}: {wrong!r} is no principal, expected User:CN=NAME, separated by semicolons"
        )
    return named


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A sequence of RDNs, each of (attribute, value) pairs, in RFC 2253's order: the last one first."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escape(value)}" for name, value in parts)
        for parts in reversed(subject)
    )


def _escape(value: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in value)
    if escaped.startswith((" ", "#")):
        escaped = f"\\{escaped}"
    if value.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped
