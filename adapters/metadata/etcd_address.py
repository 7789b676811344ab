"""Where an etcd is, what to call its keys, and as whom: `etcd://HOST[:PORT][,HOST[:PORT]...]/PREFIX`."""

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from adapters.names import check_prefix

SCHEME: Final = "etcd://"
DEFAULT_PORT: Final = 2379
_ENDPOINT: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")

Endpoints: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Login:
    """A user of etcd. The password is in no message, and not in `repr`."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    endpoints: Endpoints
    """HOST:PORT of each member, in the order in which they are tried."""
    prefix: str
    """All keys begin with it and `/`."""

    def __str__(self) -> str:
        return f"etcd at {','.join(self.endpoints)}"


def address_of(url: str) -> EtcdAddress:
    """ValueError with one sentence, which repeats nothing of the URL that could be a password."""
    hosts, slash, prefix = url.removeprefix(SCHEME).partition("/")
    if not url.startswith(SCHEME) or not slash:
        raise ValueError("the URL of an etcd is etcd://HOST[:PORT][,HOST[:PORT]...]/PREFIX")
    if "@" in hosts:
        raise ValueError("the URL of an etcd names no user and no password; they are settings of their own")
    if "?" in url or "#" in url:
        raise ValueError("the URL of an etcd has no options after its prefix")
    endpoints = tuple(_endpoint(host) for host in hosts.split(","))
    if len(set(endpoints)) != len(endpoints):
        raise ValueError("the URL of an etcd names an endpoint twice")
    return EtcdAddress(endpoints, check_prefix(prefix, "the prefix in the URL of an etcd"))


def _endpoint(text: str) -> str:
    found = _ENDPOINT.fullmatch(text)
    port = int(found["port"] or DEFAULT_PORT) if found is not None else 0
    if found is None or not 0 < port < 65536:
        raise ValueError(
            "an endpoint in the URL of an etcd is not HOST:PORT; addresses of IPv6 have [brackets]"
        )
    return f"{found['host']}:{port}"
