"""What is checked before an etcd is used: that it can be reached, its version, the login, the permissions.

Plain, blocking code: an etcd that will not do is refused before there is an event loop to wait on.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from adapters.metadata.etcd_address import EtcdAddress, Login
from adapters.metadata.etcd_client import other_cluster
from adapters.metadata.etcd_endpoint import (
    AUTHENTICATE,
    RANGE,
    STATUS,
    TXN,
    Dialling,
    check_version,
    metadata_of,
    named,
)
from adapters.metadata.etcd_errors import explained
from adapters.rpc.caller import Limits
from adapters.rpc.channel import grpc
from adapters.rpc.endpoint import Rpc, serialized, unreached_by
from adapters.rpc.failures import CallFailed, Failure, Meaning
from adapters.rpc.generated import etcd_pb2 as pb
from ledger.errors import StoreUnavailable

AUTHENTICATION_IS_OFF: Final = "authentication is not enabled"
TRIAL_KEY: Final = "trial"


class Opened(NamedTuple):
    cluster_id: int
    token: str
    """Empty if etcd asks for none."""


def check_etcd(address: EtcdAddress, dialling: Dialling, login: Login | None) -> Opened:
    """StoreUnavailable with one sentence for the operator if this etcd will not do. One member that answers
    is enough: the others are checked when they are needed."""
    channels = {name: dialling.to(name).blocking() for name in address.endpoints}
    try:
        return _checked(address, channels, dialling, login)
    except CallFailed as failed:
        raise StoreUnavailable(str(failed)) from failed
    finally:
        for channel in channels.values():
            channel.close()


def _checked(
    address: EtcdAddress, channels: Mapping[str, Any], dialling: Dialling, login: Login | None
) -> Opened:
    clusters = _clusters(channels, dialling)
    first = next(iter(clusters))
    for name, cluster_id in clusters.items():
        if cluster_id and clusters[first] and cluster_id != clusters[first]:
            raise CallFailed(other_cluster(named(name)))
    member = _Member(named(first), channels[first], dialling.limits)
    token = member.token_of(login) if login is not None else ""
    member.try_rights(address.prefix, token)
    return Opened(clusters[first], token)


def _clusters(channels: Mapping[str, Any], dialling: Dialling) -> dict[str, int]:
    """The cluster of each member that answers: at least one."""
    calls = {
        name: _callable(channel, STATUS).future(
            pb.StatusRequest(), timeout=dialling.limits.connect_s, metadata=metadata_of("")
        )
        for name, channel in channels.items()
    }
    clusters: dict[str, int] = {}
    failures: list[Failure] = []
    for name, call in calls.items():
        try:
            status = call.result()
        except grpc.RpcError as error:
            failure = unreached_by(error, named(name), explained)
            if failure.meaning is Meaning.UNAUTHENTICATED:
                clusters[name] = 0
            else:
                failures.append(failure)
        else:
            check_version(status.version, named(name))
            clusters[name] = status.header.cluster_id
    if not clusters:
        raise CallFailed(failures[0])
    return clusters


class _Member:
    """Blocking calls to one member."""

    def __init__(self, name: str, channel: Any, limits: Limits) -> None:
        self._name = name
        self._channel = channel
        self._timeout_s = limits.call_s

    def token_of(self, login: Login) -> str:
        """Empty where authentication is off: etcd needs no user then."""
        request = pb.AuthenticateRequest(name=login.user, password=login.password)
        try:
            return str(self._call(AUTHENTICATE, request, "").token)
        except CallFailed as failed:
            if AUTHENTICATION_IS_OFF in str(failed):
                return ""
            raise

    def try_rights(self, prefix: str, token: str) -> None:
        """A transaction whose comparison never holds: etcd permits all that could be done in it, or refuses
        it. It also shows that a majority of the members is there."""
        key, end = f"{prefix}/{TRIAL_KEY}".encode(), f"{prefix}0".encode()
        never = pb.Compare(key=key, target=pb.Compare.VERSION, result=pb.Compare.EQUAL, version=-1)
        read = pb.RangeRequest(key=f"{prefix}/".encode(), range_end=end, limit=1, keys_only=True)
        trial = pb.TxnRequest(
            compare=[never],
            success=[pb.Operation(put=pb.PutRequest(key=key))],
            failure=[pb.Operation(range=read)],
        )
        try:
            self._call(TXN, trial, token)
        except CallFailed as failed:
            if failed.meaning is not Meaning.NO_SPACE:
                raise
            # What is there can still be read, and pruned.
            self._call(RANGE, read, token)

    def _call(self, rpc: Rpc[Any, Any], request: Any, token: str) -> Any:
        try:
            return _callable(self._channel, rpc)(
                request, timeout=self._timeout_s, metadata=metadata_of(token)
            )
        except grpc.RpcError as error:
            raise CallFailed(explained(self._name, error.code().name, error.details() or "")) from error


def _callable(channel: Any, rpc: Rpc[Any, Any]) -> Any:
    return channel.unary_unary(
        rpc.path,
        request_serializer=serialized,
        response_deserializer=rpc.response,
    )
