"""The internal listener: opens the Unix socket and the addresses of `internal.listen`, and hands a connection
to a child process."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gateway.addresses import (
    INTERNAL_SETTING,
    PLAINTEXT,
    SSL,
    Address,
    Binding,
    Listener,
    PlainBeyondLoopback,
    is_loopback,
    parse_internal_bindings,
)
from gateway.housekeeping.pins import PinExpiry
from gateway.internal.apis import handlers_of
from gateway.internal.shard_access import ShardAccess
from gateway.network.links import Links, Listening
from gateway.network.server import Server
from gateway.network.sockets import AcceptedSocket
from gateway.network.unix_sockets import SocketFailed, UnixListening
from gateway.requests.context import Services
from gateway.router import RequestRouter, served_versions
from gateway.security.principals import parse_principals
from gateway.security.tls import Certificates
from gateway.settings import ConfigError, Internal, Settings, Tls

log = structlog.get_logger()

SOCKET_FILE: Final = "internal.sock"
NO_SOCKET: Final = "none"
UNIX: Final = "UNIX"
CHILD: Final = "CHILD"
"""Names of listeners, besides those of protocols."""
NOWHERE: Final = Address("", 0)
FRAME_BYTES: Final = 16 * 1024 * 1024
"""Largest request."""


class InternalListener:
    """All ways to the internal APIs of one gateway."""

    def __init__(
        self,
        settings: Settings,
        services: Services,
        access: ShardAccess,
        directory: Path | None,
        links: Links,
    ) -> None:
        """`directory`: the data directory, if there is one. Raises ConfigError."""
        internal = settings.internal
        self._access = access
        self._links = links
        self._directory = directory
        self._settings = internal
        self._bindings = bindings_of(settings)
        self.certificates = self._certificates(settings)
        self._principals = principals_of(internal)
        access.refusal_of = self._refusal_of
        handlers = handlers_of(access)
        own = replace(services, served=served_versions(handlers))
        limits = settings.limits
        few = msgspec.structs.replace(
            limits,
            connections=internal.connections,
            address_connections=internal.connections,
            frame_bytes=min(FRAME_BYTES, limits.frame_bytes),
        )
        self.router = RequestRouter(own, handlers, has_quotas=False)
        certificates = self.certificates
        self._server = Server(
            few, self.router, services.metrics, certificates, links=links, refusal_of=self._refusal_of
        )
        self.bound: list[Address] = []
        """Where the listeners of `internal.listen` really listen."""
        self.socket: Path | None = None

    def _certificates(self, settings: Settings) -> Certificates | None:
        is_tls = any(binding.is_tls for binding in self._bindings)
        return Certificates(_tls_of(settings)) if is_tls else None

    async def open(self) -> None:
        """Raises ConfigError, ListenFailed and SocketFailed."""
        path = socket_path(self._settings, self._directory)
        if path is not None:
            self._open_socket(path)
        for binding in self._bindings:
            addresses = await self._links.listen(binding.bind, INTERNAL_SETTING)
            try:
                _check_plain(binding, addresses)
            except ConfigError:
                _close_all(addresses)
                raise
            bound = Address(binding.bind.host, addresses[0].bound.port)
            self.bound.append(bound)
            self._server.serve(_listener(binding.name, bound), addresses, is_tls=binding.is_tls)

    def _open_socket(self, path: Path) -> None:
        try:
            listening = UnixListening(path)
        except SocketFailed as error:
            if self._settings.socket or error.in_use:
                raise
            # Nobody has asked for it, and some file systems take no sockets.
            log.warning("internal.no_socket", reason=str(error))
            return
        self.socket = path
        self._server.serve(_listener(UNIX), [listening], is_tls=False)

    def connect_child(self) -> socket.socket:
        """The end of a new connection that a child process inherits; the caller closes it once the child has
        it. There is no other way to it."""
        here, there = socket.socketpair()
        here.setblocking(False)
        self._server.adopt(_listener(CHILD), AcceptedSocket(here))
        return there

    @property
    def pins(self) -> PinExpiry:
        """When the pins of jobs were renewed."""
        return self._access.pins

    def stop_waiting(self) -> None:
        """End all long polls: the gateway drains."""
        self._access.close()

    async def close(self) -> None:
        """Stop listening, answer what is under way, then close the rest."""
        self._access.close()
        await self._server.close()

    def _refusal_of(self, listener: str, principal: str) -> str:
        if listener != SSL or principal in self._principals:
            return ""
        return f"{principal} is not one of internal.principals of this gateway"


def bindings_of(settings: Settings) -> Sequence[Binding]:
    """Of `internal.listen`. Raises ConfigError, also where TLS lacks what it needs."""
    internal = settings.internal
    bindings = parse_internal_bindings(internal.listen)
    if any(binding.is_tls for binding in bindings):
        if not (internal.ca or settings.tls.ca):
            raise ConfigError("internal.listen needs internal.ca or tls.ca, the CAs of client certificates")
        if not principals_of(internal):
            raise ConfigError(
                "internal.listen needs internal.principals, the client certificates that may connect: with "
                "none of them nobody could"
            )
    return bindings


def principals_of(internal: Internal) -> frozenset[str]:
    """Raises ConfigError."""
    return parse_principals(internal.principals, "internal.principals")


def socket_path(internal: Internal, directory: Path | None) -> Path | None:
    """Where the Unix socket is, if there is one."""
    if internal.socket == NO_SOCKET:
        return None
    if internal.socket:
        return Path(internal.socket)
    return None if directory is None else directory / SOCKET_FILE


def _tls_of(settings: Settings) -> Tls:
    """As for clients, but that a certificate is always required."""
    ca = settings.internal.ca or settings.tls.ca
    return msgspec.structs.replace(settings.tls, ca=ca, client_auth="required")


def _check_plain(binding: Binding, addresses: Sequence[Listening]) -> None:
    if not binding.is_tls and not all(is_loopback(listening.bound.host) for listening in addresses):
        raise PlainBeyondLoopback(f"{PLAINTEXT}://{binding.bind}")


def _close_all(addresses: Sequence[Listening]) -> None:
    for listening in addresses:
        listening.close()


def _listener(name: str, bound: Address = NOWHERE) -> Listener:
    return Listener(name, bound.host, bound.port)
