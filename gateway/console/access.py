"""Who may use the console: what is checked of each request before anything else.

| check                            | what it is against                                                      |
|----------------------------------|-------------------------------------------------------------------------|
| Host is an address, localhost or | a page of another site whose name resolves to this address (DNS         |
| one of `admin.hosts`             | rebinding): browsers send the name of that site                         |
| Origin, when there is one, is    | a page of another site that sends requests here                         |
| that of the Host                 |                                                                         |
| Sec-Fetch-Site is none or        | the same, where a browser sends no Origin                               |
| same-origin                      |                                                                         |
| a POST has JSON in its body      | forms of other sites, which a browser sends without a preflight         |
| the token, in constant time, or  | all others, wherever the address is reachable beyond this host          |
| the client certificate           |                                                                         |

The page and its files hold nothing of the gateway, so they need no token; the page asks for it. There is no
cookie: a browser sends nothing by itself that would authorize a request.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.config import check_readable
from gateway.security.principals import ANONYMOUS, parse_principals
from gateway.settings import Admin, ConfigError

MIN_TOKEN_CHARS: Final = 16
LOCALHOST: Final = "localhost"
SAME_SITES: Final = frozenset({"none", "same-origin"})
BEARER: Final = "Bearer "
TOKEN_SETTING: Final = "admin.token_file"
_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every response. Scripts run from this address alone, and none can make markup of a text."""


class Denied(Exception):
    """A request that is not served: its HTTP status, a fixed word for the log, and a text for people."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the checks look at. Header values are as they came, None for those that are absent."""

    method: str
    scheme: str
    host: str | None
    origin: str | None
    fetch_site: str | None
    content_type: str
    authorization: str | None
    principal: str = ANONYMOUS
    """Of the client certificate."""


class Access:
    """The rules of one admin address. Raises ConfigError for a token that cannot be used."""

    def __init__(self, settings: Admin, *, is_loopback: bool) -> None:
        self._hosts = frozenset(name.lower().rstrip(".") for name in settings.hosts)
        self._digest = _digest(read_token(settings.token_file)) if settings.token_file else None
        self._principals = parse_principals(settings.principals, "admin.principals")
        if ANONYMOUS in self._principals:
            raise ConfigError(f"admin.principals: {ANONYMOUS} is everybody without a certificate")
        self._is_loopback = is_loopback

    def needs_token_of(self, principal: str) -> bool:
        return self._digest is not None and principal not in self._principals

    @property
    def _needs_nothing(self) -> bool:
        return self._digest is None and not self._principals

    @property
    def is_closed(self) -> bool:
        """Whether the address is reachable from elsewhere, and there is no way to say who may use it."""
        return self._digest is None and not self._principals and not self._is_loopback

    def check_sender(self, facts: RequestFacts) -> None:
        """Of every request, also of those for the page. Raises Denied."""
        if facts.host is None or not self._is_known(facts.host):
            raise Denied(
                421, "host", "The console is not served under this host name: see the setting admin.hosts."
            )
        if facts.origin is not None and facts.origin.lower() != f"{facts.scheme}://{facts.host}".lower():
            raise Denied(403, "origin", "The request comes from a page of another site.")
        if (facts.fetch_site or "none") not in SAME_SITES and facts.method != "GET":
            raise Denied(403, "origin", "The request comes from a page of another site.")
        if facts.method == "POST" and facts.content_type != "application/json":
            raise Denied(415, "content_type", "The body of a request is application/json.")

    def check_user(self, facts: RequestFacts) -> None:
        """Of every request for data, after `check_sender`. Raises Denied."""
        if (facts.fetch_site or "none") not in SAME_SITES:
            raise Denied(403, "origin", "The request comes from a page of another site.")
        if self.is_closed:
            raise Denied(
                403,
                "closed",
                "This address is reachable beyond loopback: the console needs the setting admin.token_file.",
            )
        if facts.principal in self._principals or self._needs_nothing:
            return
        if self._digest is None:
            raise Denied(403, "principal", f"{facts.principal} is not one of admin.principals.")
        given = facts.authorization or ""
        token = given[len(BEARER) :].strip() if given.startswith(BEARER) else ""
        # Digests have one length, so not even that of the token can be measured.
        if not hmac.compare_digest(_digest(token.encode("utf-8", "surrogateescape")), self._digest):
            raise Denied(401, "token" if given else "no_token", "The console needs its token.")

    def _is_known(self, host: str) -> bool:
        name = host_name_of(host)
        if name is None:
            return False
        return name == LOCALHOST or name in self._hosts or _is_address(name)


def host_name_of(host: str) -> str | None:
    """The host of a Host header, in lower case and without port and brackets; None if it is malformed."""
    matched = _HOST.fullmatch(host)
    if matched is None:
        return None
    return (matched["address"] or matched["name"]).lower().rstrip(".") or None


def read_token(file: str) -> bytes:
    """The first line of the file. Raises ConfigError, which never names what the file holds."""
    check_readable(TOKEN_SETTING, file)
    lines = Path(file).read_bytes().splitlines()
    token = lines[0].strip() if lines else b""
    if len(token) < MIN_TOKEN_CHARS:
        raise ConfigError(
            f"{TOKEN_SETTING} = {file}: the first line is shorter than {MIN_TOKEN_CHARS} characters"
        )
    return token


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
