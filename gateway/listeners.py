"""Addresses: where the gateway listens, and what clients are told to connect to."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.config import ConfigError

_LISTEN = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]*)://(?P<address>.*)")
_ADDRESS = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/]*)):(?P<port>\d{1,5})")
_EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address and a port; port 0 means any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Binding:
    """A listener as configured. `advertised` port 0 means the port that was bound."""

    name: str
    bind: Address
    advertised: Address


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
        if advertised.host in _EVERY_ADDRESS:
            raise ConfigError(
                f"listener {text} takes every address, which no client can connect to: "
                "say with --advertise HOST:PORT (listeners.advertise) what clients shall use"
            )
        bindings.append(Binding(name, bind, advertised))
    return bindings


def _parse_listen(text: str) -> tuple[str, Address]:
    match = _LISTEN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"listeners.listen = {text!r}: expected PLAINTEXT://HOST:PORT")
    if match["name"].upper() != PLAINTEXT:
        raise ConfigError(f"listeners.listen = {text!r}: only PLAINTEXT:// is supported")
    return match["name"].upper(), parse_address(match["address"], "listeners.listen")
