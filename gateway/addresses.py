"""Addresses: where the gateway listens, and what it advertises to clients."""

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.limit_settings import ConfigError

_LISTEN = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]*)://(?P<address>.*)")
_ADDRESS = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/]*)):(?P<port>\d{1,5})")
PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL)
"""Kafka's names of security protocols; a listener is called by its protocol."""
INTERNAL_SETTING: Final = "internal.listen"


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address and a port; port 0 means any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_every_address(self) -> bool:
        """Whether to listen here means to listen on all addresses of the machine."""
        if not self.host:
            return True
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            pass
        try:
            # Old forms of an address, which the system understands: 0, 0x0, 0.0.
            return socket.inet_aton(self.host) == bytes(4)
        except (OSError, ValueError):
            return False


@dataclass(frozen=True, slots=True)
class Binding:
    """A listener as configured. `advertised` port 0 means the port that was bound."""

    name: str
    bind: Address
    advertised: Address

    @property
    def is_tls(self) -> bool:
        return self.name == SSL


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener as clients of it see the gateway: its name and the advertised address."""

    name: str
    host: str
    port: int


def parse_address(text: str, setting: str) -> Address:
    """HOST:PORT or [IPv6]:PORT. Raises ConfigError that names the setting."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"{setting} = {text!r}: expected HOST:PORT with a port of 0 to 65535")
    return Address(match["v6"] or match["host"] or "", int(match["port"]))


def parse_bindings(listen: Sequence[str], advertise: Sequence[str]) -> list[Binding]:
    """Listeners from the settings `listeners.listen` and `listeners.advertise`. Raises ConfigError."""
    if advertise and len(advertise) != len(listen):
        raise ConfigError(
            f"listeners.advertise has {len(advertise)} addresses for {len(listen)} listeners: give one each"
        )
    bindings = []
    for number, text in enumerate(listen):
        name, bind = _parse_listen(text)
        advertised = parse_address(advertise[number], "listeners.advertise") if advertise else bind
        if advertised.is_every_address:
            raise ConfigError(
                f"listener {text} listens on every address, which no client can connect to: "
                "name with --advertise HOST:PORT (listeners.advertise) the address for clients"
                if advertised is bind
                else f"listeners.advertise = {advertise[number]!r}: no client can connect to every address"
            )
        bindings.append(Binding(name, bind, advertised))
    return bindings


def parse_internal_bindings(listen: Sequence[str]) -> list[Binding]:
    """Internal listeners from the setting `internal.listen`; nothing is advertised. Raises ConfigError, also
    for one without encryption on an address beyond loopback."""
    bindings = []
    for text in listen:
        name, bind = _parse_listen(text, INTERNAL_SETTING)
        if name == PLAINTEXT and (bind.is_every_address or _is_beyond_loopback(bind.host)):
            raise PlainBeyondLoopback(text)
        bindings.append(Binding(name, bind, bind))
    return bindings


class PlainBeyondLoopback(ConfigError):
    """An internal listener without encryption that other machines could reach."""

    def __init__(self, listen: str) -> None:
        super().__init__(
            f"{INTERNAL_SETTING} = {listen}: without encryption only loopback may be listened on; use SSL://"
        )


def _parse_listen(text: str, setting: str = "listeners.listen") -> tuple[str, Address]:
    match = _LISTEN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{setting} = {text!r}: expected PLAINTEXT://HOST:PORT or SSL://HOST:PORT")
    name = match["name"].upper()
    if name not in PROTOCOLS:
        known = " and ".join(f"{protocol}://" for protocol in PROTOCOLS)
        raise ConfigError(f"{setting} = {text!r}: there is no {name}://, only {known}")
    return name, parse_address(match["address"], setting)


def _is_beyond_loopback(host: str) -> bool:
    """Of a name that is not known yet."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return not is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an IP address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
