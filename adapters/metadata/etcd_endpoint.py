"""One member of an etcd, and the calls that it has."""

import re
from dataclasses import dataclass
from typing import Final

from adapters.metadata.etcd_errors import explained
from adapters.rpc.caller import Limits
from adapters.rpc.channel import Dial, options
from adapters.rpc.endpoint import CallMetadata, Endpoint, Rpc
from adapters.rpc.failures import CallFailed, Failure, Meaning
from adapters.rpc.generated import etcd_pb2 as pb
from adapters.rpc.tls import Tls
from ledger.ports import SCAN_BYTES

MAX_RECEIVE_BYTES: Final = 2 * SCAN_BYTES + 64 * 1024
"""More than this is never in memory for one call: a scan takes its values in pages."""
OLDEST_VERSION: Final = (3, 4)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")

RANGE: Final[Rpc[pb.RangeRequest, pb.RangeResponse]] = Rpc(
    "/etcdserverpb.KV/Range", pb.RangeResponse.FromString
)
TXN: Final[Rpc[pb.TxnRequest, pb.TxnResponse]] = Rpc(
    "/etcdserverpb.KV/Txn", pb.TxnResponse.FromString, writes=True
)
STATUS: Final[Rpc[pb.StatusRequest, pb.StatusResponse]] = Rpc(
    "/etcdserverpb.Maintenance/Status", pb.StatusResponse.FromString
)
COMPACT: Final[Rpc[pb.CompactionRequest, pb.CompactionResponse]] = Rpc(
    # A second compaction of the same revision changes nothing, so it may be repeated.
    "/etcdserverpb.KV/Compact",
    pb.CompactionResponse.FromString,
)
AUTHENTICATE: Final[Rpc[pb.AuthenticateRequest, pb.AuthenticateResponse]] = Rpc(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse.FromString
)
RPCS: Final = (RANGE, TXN, STATUS, COMPACT, AUTHENTICATE)


def metadata_of(token: str) -> CallMetadata:
    """Of a call. A member without a leader refuses it at once."""
    leader = ("hasleader", "true")
    return (("token", token), leader) if token else (leader,)


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


def named(address: str) -> str:
    return f"etcd at {address}"


@dataclass(frozen=True, slots=True)
class Dialling:
    """How channels are made."""

    tls: Tls | None
    limits: Limits

    def to(self, address: str) -> Dial:
        return Dial(address, self.tls, options(MAX_RECEIVE_BYTES, self.limits.connect_s), named(address))


class Member(Endpoint):
    def __init__(self, address: str, dialling: Dialling) -> None:
        super().__init__(dialling.to(address), RPCS, explained)
        self.cluster_id = 0
        """As of the last connection; 0 if the member does not say it without a login."""
        self._connect_s = dialling.limits.connect_s

    async def check(self) -> None:
        try:
            status = await self.first_call(STATUS, pb.StatusRequest(), self._connect_s)
        except CallFailed as failed:
            if failed.meaning is not Meaning.UNAUTHENTICATED:
                raise
            self.cluster_id = 0
        else:
            check_version(status.version, self.name)
            self.cluster_id = status.header.cluster_id
