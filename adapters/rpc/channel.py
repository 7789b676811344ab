"""Channels of gRPC, and their options."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from adapters.rpc.tls import Tls, TlsBytes, read_tls

# gRPC would write to stderr by itself, between the lines of the log. Read when it is imported: so every other
# module takes `grpc` from here.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc as grpc

KEEPALIVE_MS: Final = 20_000
"""A connection with calls under way that is silent for that long has to give a sign of life. Servers close
connections that ask more often than every 5 s."""
KEEPALIVE_TIMEOUT_MS: Final = 5_000
FIRST_BACKOFF_MS: Final = 50
LONGEST_BACKOFF_MS: Final = 1_000

Options: TypeAlias = Sequence[tuple[str, int]]


def options(max_receive_bytes: int, connect_s: float) -> Options:
    """Of a channel that sends no call twice, reconnects soon, and goes through no proxy."""
    return (
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.initial_reconnect_backoff_ms", FIRST_BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", LONGEST_BACKOFF_MS),
        # Despite its name: how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", int(connect_s * 1000)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", max_receive_bytes),
    )


@dataclass(frozen=True, slots=True)
class Dial:
    """How a server is connected to."""

    address: str
    """HOST:PORT."""
    tls: Tls | None
    options: Options
    store: str
    """For messages."""

    def files(self) -> TlsBytes | None:
        """What the files of TLS hold now. Errors: StoreUnavailable."""
        return read_tls(self.tls, self.store) if self.tls is not None else None

    def blocking(self) -> Any:
        files = self.files()
        if files is None:
            return grpc.insecure_channel(self.address, self.options)
        return grpc.secure_channel(self.address, _credentials(files), self.options)

    def here(self, files: TlsBytes | None) -> Any:
        """On the running event loop."""
        if files is None:
            return grpc.aio.insecure_channel(self.address, self.options)
        return grpc.aio.secure_channel(self.address, _credentials(files), self.options)


def _credentials(files: TlsBytes) -> Any:
    return grpc.ssl_channel_credentials(files.roots, files.key, files.certificate)
