"""One member of an etcd: its channel, and the calls that go through it."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from adapters.metadata.etcd_errors import CallFailed, Failure, Meaning, explained, unreached
from adapters.rpc.channel import Options, credentials, grpc, options
from adapters.rpc.generated import etcd_pb2 as pb
from adapters.rpc.tls import Tls
from ledger.ports import SCAN_BYTES

Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_RECEIVE_BYTES: Final = 2 * SCAN_BYTES + 64 * 1024
"""More than this is never in memory for one call: a scan takes its values in pages."""
OLDEST_VERSION: Final = (3, 4)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Request, Response]):
    path: str
    response: Callable[[bytes], Response]
    writes: bool = False


RANGE: Final[Rpc[pb.RangeRequest, pb.RangeResponse]] = Rpc(
    "/etcdserverpb.KV/Range", pb.RangeResponse.FromString
)
TXN: Final[Rpc[pb.TxnRequest, pb.TxnResponse]] = Rpc(
    "/etcdserverpb.KV/Txn", pb.TxnResponse.FromString, writes=True
)
STATUS: Final[Rpc[pb.StatusRequest, pb.StatusResponse]] = Rpc(
    "/etcdserverpb.Maintenance/Status", pb.StatusResponse.FromString
)
AUTHENTICATE: Final[Rpc[pb.AuthenticateRequest, pb.AuthenticateResponse]] = Rpc(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse.FromString
)
RPCS: Final = (RANGE, TXN, STATUS, AUTHENTICATE)


@dataclass(frozen=True, slots=True)
class Limits:
    call_s: float = 10.0
    """Of a call, on however many endpoints it is tried."""
    attempt_s: float = 5.0
    """Of one attempt."""
    connect_s: float = 3.0
    patience_s: float = 2.0
    """How long an endpoint is looked for that can be reached: some restart faster than that."""
    max_waiting: int = 4096
    """Calls at a time."""


def metadata_of(token: str) -> tuple[tuple[str, str], ...]:
    """Of a call. A member without a leader refuses it at once."""
    leader = ("hasleader", "true")
    return (("token", token), leader) if token else (leader,)


def failure_of(error: Any, etcd: str) -> Failure:
    """Of an error of gRPC."""
    return explained(etcd, error.code().name, error.details() or "")


def unreached_by(error: Any, etcd: str) -> Failure:
    """Of an error of the first call on a connection, which changes nothing."""
    if error.code().name == "UNAVAILABLE":
        return Failure(Meaning.NOT_SENT, unreached(etcd, error.details() or ""))
    return failure_of(error, etcd)


def check_version(version: str, etcd: str) -> None:
    """CallFailed if it is too old."""
    found = _VERSION.match(version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_VERSION:
        raise CallFailed(
            Failure(
                Meaning.REFUSED,
                f"{etcd} has version {version[:40]}, and 3.4 is the oldest that will do: upgrade it",
            )
        )


@dataclass(frozen=True, slots=True)
class Dialling:
    """How channels are made."""

    tls: Tls | None
    limits: Limits

    @property
    def options(self) -> Options:
        return options(MAX_RECEIVE_BYTES, self.limits.connect_s)

    def blocking(self, address: str) -> Any:
        if self.tls is None:
            return grpc.insecure_channel(address, self.options)
        return grpc.secure_channel(address, credentials(self.tls, named(address)), self.options)

    def channel(self, address: str) -> Any:
        """On the running event loop."""
        if self.tls is None:
            return grpc.aio.insecure_channel(address, self.options)
        return grpc.aio.secure_channel(address, credentials(self.tls, named(address)), self.options)


def named(address: str) -> str:
    return f"etcd at {address}"


class Endpoint:
    """A channel on one event loop. Calls raise CallFailed."""

    def __init__(self, address: str, dialling: Dialling) -> None:
        self.name = named(address)
        self.cluster_id = 0
        """As of the last connection; 0 if the member does not say it without a login."""
        self._dialling = dialling
        self._channel = dialling.channel(address)
        self._callables: Mapping[str, Any] = MappingProxyType(
            {
                rpc.path: self._channel.unary_unary(
                    rpc.path, request_serializer=_serialized, response_deserializer=rpc.response
                )
                for rpc in RPCS
            }
        )
        self._is_checked = False
        self._check: asyncio.Task[None] | None = None

    async def reach(self) -> None:
        """Return when there is a connection to an etcd that will do. Nothing that could have an effect is
        sent before. Several callers share one attempt."""
        if self._is_checked and self._channel.get_state() is grpc.ChannelConnectivity.READY:
            return
        if self._check is None:
            self._check = asyncio.create_task(self._checked(), name=f"connect to {self.name}")
            self._check.add_done_callback(self._end_check)
        await asyncio.shield(self._check)

    async def call(
        self, rpc: Rpc[Request, Response], request: Request, token: str, timeout_s: float
    ) -> Response:
        try:
            response: Response = await self._callables[rpc.path](
                request, timeout=timeout_s, metadata=metadata_of(token)
            )
        except grpc.aio.AioRpcError as error:
            raise CallFailed(failure_of(error, self.name)) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this task is cancelled, but the call, as the channel was closed.
            closed = Failure(Meaning.UNKNOWN, f"{self.name}: the store was closed while a call was under way")
            raise CallFailed(closed) from error
        return response

    def forget(self) -> None:
        """Check the member before the next call: gRPC connects again by itself, maybe to another one."""
        self._is_checked = False

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
        await self._channel.close()

    async def _checked(self) -> None:
        limits = self._dialling.limits
        try:
            status = await self._callables[STATUS.path](
                pb.StatusRequest(), timeout=limits.connect_s, metadata=metadata_of("")
            )
        except grpc.aio.AioRpcError as error:
            failure = unreached_by(error, self.name)
            if failure.meaning is not Meaning.UNAUTHENTICATED:
                raise CallFailed(failure) from error
            self.cluster_id = 0
        else:
            check_version(status.version, self.name)
            self.cluster_id = status.header.cluster_id
        self._is_checked = True

    def _end_check(self, check: asyncio.Task[None]) -> None:
        self._check = None
        if not check.cancelled():
            # Its callers may be gone.
            check.exception()


def _serialized(request: Any) -> bytes:
    return bytes(request.SerializeToString())
