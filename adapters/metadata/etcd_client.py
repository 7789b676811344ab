"""Calls to an etcd of several members: the endpoint that answers, and a token."""

import asyncio
from typing import Any, TypeVar

from adapters.metadata.etcd_address import EtcdAddress, Login
from adapters.metadata.etcd_endpoint import AUTHENTICATE, STATUS, Dialling, Member, metadata_of
from adapters.metadata.etcd_errors import error_of
from adapters.rpc.caller import Caller, Limits
from adapters.rpc.endpoint import Rpc
from adapters.rpc.failures import CallFailed, Failure, Meaning
from adapters.rpc.generated import etcd_pb2 as pb
from adapters.rpc.tls import Tls

Request = TypeVar("Request")
Response = TypeVar("Response")


class EtcdClient:
    """Calls go to one endpoint until it fails, then to the next."""

    def __init__(self, address: EtcdAddress, tls: Tls | None, login: Login | None, limits: Limits) -> None:
        self.dialling = Dialling(tls, limits)
        self._address = address
        self._login = login
        self._limits = limits
        self._caller = Caller(str(address), limits, len(address.endpoints), error_of)
        self._cluster_id = 0
        self._token = ""
        self._endpoints: list[Member] = []
        self._preferred = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewing = asyncio.Lock()

    def opened(self, cluster_id: int, token: str) -> None:
        """What opening has found out: calls are refused by an etcd with another id."""
        self._cluster_id, self._token = cluster_id, token

    async def call(self, rpc: Rpc[Request, Response], request: Request) -> Response:
        """StoreUnavailable: it certainly had no effect. OutcomeUnknown: it may have had one."""
        return await self._caller.until_answered(
            lambda until: self._on_one_endpoint(rpc, request, until), writes=rpc.writes
        )

    async def statuses(self) -> list[pb.StatusResponse]:
        """Of the members that answer, at least one."""
        return await self._caller.until_answered(self._statuses, writes=False)

    async def close(self) -> None:
        """After the calls that are under way. Idempotent."""
        if await self._caller.close() and self._loop is asyncio.get_running_loop():
            for endpoint in self._endpoints:
                await endpoint.close()

    async def _on_one_endpoint(self, rpc: Rpc[Request, Response], request: Request, until: float) -> Response:
        endpoint = self._endpoints_here()[self._preferred]
        try:
            await self._reach(endpoint)
            return await self._on(endpoint, rpc, request, until)
        except CallFailed as failed:
            if failed.meaning in (Meaning.NOT_SENT, Meaning.UNKNOWN):
                self._turn_from(endpoint)
            raise

    async def _statuses(self, until: float) -> list[pb.StatusResponse]:
        found: list[pb.StatusResponse] = []
        failure: CallFailed | None = None
        for endpoint in self._endpoints_here():
            try:
                await self._reach(endpoint)
                found.append(await self._on(endpoint, STATUS, pb.StatusRequest(), until))
            except CallFailed as failed:
                failure = failed
        if failure is not None and not found:
            raise failure
        return found

    async def _reach(self, endpoint: Member) -> None:
        """CallFailed: whatever is wrong with it, nothing was sent that could have an effect."""
        try:
            await endpoint.reach()
            self._check_cluster(endpoint, endpoint.cluster_id)
        except CallFailed as failed:
            raise CallFailed(Failure(Meaning.NOT_SENT, str(failed))) from failed

    async def _on(
        self, endpoint: Member, rpc: Rpc[Request, Response], request: Request, until: float
    ) -> Response:
        token = self._token
        try:
            response = await endpoint.call(rpc, request, metadata_of(token), self._limits.left_s(until))
        except CallFailed as failed:
            if failed.meaning is not Meaning.UNAUTHENTICATED or self._login is None:
                raise
            await self._renew(token, endpoint)
            response = await endpoint.call(rpc, request, metadata_of(self._token), self._limits.left_s(until))
        self._check_cluster(endpoint, cluster_of(response))
        return response

    async def _renew(self, used: str, endpoint: Member) -> None:
        """A new token in place of the one that was used, unless another call has renewed it meanwhile."""
        login = self._login
        async with self._renewing:
            if login is None or self._token != used:
                return
            request = pb.AuthenticateRequest(name=login.user, password=login.password)
            try:
                response = await endpoint.call(AUTHENTICATE, request, (), self._limits.attempt_s)
            except CallFailed as failed:
                if failed.meaning is Meaning.UNKNOWN:
                    # Of the call that needs the token nothing was sent.
                    raise CallFailed(Failure(Meaning.NOT_SENT, str(failed))) from failed
                raise
            self._token = response.token

    def _endpoints_here(self) -> list[Member]:
        """Of the running event loop: channels belong to one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._renewing = asyncio.Lock()
            self._endpoints = [Member(address, self.dialling) for address in self._address.endpoints]
        return self._endpoints

    def _turn_from(self, endpoint: Member) -> None:
        """Prefer the next endpoint, unless another call has done so."""
        endpoint.forget()
        if self._endpoints[self._preferred] is endpoint:
            self._preferred = (self._preferred + 1) % len(self._endpoints)

    def _check_cluster(self, endpoint: Member, cluster_id: int) -> None:
        if not self._cluster_id:
            self._cluster_id = cluster_id
        if cluster_id and cluster_id != self._cluster_id:
            raise CallFailed(other_cluster(endpoint.name))


def cluster_of(response: Any) -> int:
    """Every response has a header that says it."""
    return int(response.header.cluster_id)


def other_cluster(etcd: str) -> Failure:
    return Failure(
        Meaning.UNKNOWN,
        f"{etcd} belongs to another cluster than before, or than the other endpoints: correct the URL, or, "
        "if it was restored, start the gateway again",
    )
