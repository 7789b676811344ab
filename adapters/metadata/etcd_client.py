"""Calls to an etcd of several members: the endpoint that answers, a token, and a deadline for each call."""

import asyncio
from typing import Any, Final, TypeVar

from adapters.metadata.etcd_address import EtcdAddress, Login
from adapters.metadata.etcd_endpoint import (
    AUTHENTICATE,
    Dialling,
    Endpoint,
    Limits,
    Rpc,
)
from adapters.metadata.etcd_errors import AnswerTooLarge, CallFailed, Failure, Meaning, NoSpace
from adapters.rpc.generated import etcd_pb2 as pb
from adapters.rpc.tls import Tls
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable

Request = TypeVar("Request")
Response = TypeVar("Response")

SHORTEST_ATTEMPT_S: Final = 0.05
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.2
"""Between rounds through all endpoints."""


class EtcdClient:
    """Calls go to one endpoint until it fails, then to the next. A call whose outcome is unknown is made
    again only if it reads."""

    def __init__(self, address: EtcdAddress, tls: Tls | None, login: Login | None, limits: Limits) -> None:
        self._address = address
        self._login = login
        self._limits = limits
        self._dialling = Dialling(tls, limits)
        self._cluster_id = 0
        self._token = ""
        self._endpoints: list[Endpoint] = []
        self._preferred = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewing = asyncio.Lock()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._is_closed = False

    @property
    def dialling(self) -> Dialling:
        return self._dialling

    def opened(self, cluster_id: int, token: str) -> None:
        """What opening has found out: calls are refused by an etcd with another id."""
        self._cluster_id, self._token = cluster_id, token

    async def call(self, rpc: Rpc[Request, Response], request: Request) -> Response:
        """StoreUnavailable: it certainly had no effect. OutcomeUnknown: it may have had one."""
        if self._is_closed:
            raise StoreUnavailable(f"{self._address} is closed")
        if self._under_way >= (limit := self._limits.max_waiting):
            raise StoreUnavailable(f"{self._address} is too slow: {limit} calls wait for it; try again")
        self._under_way += 1
        try:
            return await self._until_answered(rpc, request)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def close(self) -> None:
        """After the calls that are under way. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is not asyncio.get_running_loop():
            return
        if self._under_way:
            self._idle.clear()
            await self._idle.wait()
        for endpoint in self._endpoints:
            await endpoint.close()

    async def _until_answered(self, rpc: Rpc[Request, Response], request: Request) -> Response:
        limits, count = self._limits, len(self._address.endpoints)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        attempts, pause_s = 0, FIRST_PAUSE_S
        while True:
            try:
                return await self._on_one_endpoint(rpc, request, begun + limits.call_s)
            except CallFailed as failed:
                if not is_repeatable(rpc, failed.meaning):
                    raise error_of(failed) from failed
                attempts += 1
                limit_s = limits.patience_s if failed.meaning is Meaning.NOT_SENT else limits.call_s
                if attempts >= count and loop.time() - begun >= limit_s:
                    raise StoreUnavailable(str(failed)) from failed
            if attempts % count == 0:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _on_one_endpoint(self, rpc: Rpc[Request, Response], request: Request, until: float) -> Response:
        endpoint = self._endpoints_here()[self._preferred]
        try:
            await self._reach(endpoint)
            return await self._on(endpoint, rpc, request, until)
        except CallFailed as failed:
            if failed.meaning in (Meaning.NOT_SENT, Meaning.UNKNOWN):
                self._turn_from(endpoint)
            raise

    async def _reach(self, endpoint: Endpoint) -> None:
        """CallFailed: whatever is wrong with it, nothing was sent that could have an effect."""
        try:
            await endpoint.reach()
            self._check_cluster(endpoint, endpoint.cluster_id)
        except CallFailed as failed:
            raise CallFailed(Failure(Meaning.NOT_SENT, str(failed))) from failed

    async def _on(
        self, endpoint: Endpoint, rpc: Rpc[Request, Response], request: Request, until: float
    ) -> Response:
        def left_s() -> float:
            left = until - asyncio.get_running_loop().time()
            return max(min(left, self._limits.attempt_s), SHORTEST_ATTEMPT_S)

        token = self._token
        try:
            response = await endpoint.call(rpc, request, token, left_s())
        except CallFailed as failed:
            if failed.meaning is not Meaning.UNAUTHENTICATED or self._login is None:
                raise
            await self._renew(token, endpoint)
            response = await endpoint.call(rpc, request, self._token, left_s())
        self._check_cluster(endpoint, cluster_of(response))
        return response

    async def _renew(self, used: str, endpoint: Endpoint) -> None:
        """A new token in place of the one that was used, unless another call has renewed it meanwhile."""
        login = self._login
        async with self._renewing:
            if login is None or self._token != used:
                return
            request = pb.AuthenticateRequest(name=login.user, password=login.password)
            try:
                response = await endpoint.call(AUTHENTICATE, request, "", self._limits.attempt_s)
            except CallFailed as failed:
                if failed.meaning is Meaning.UNKNOWN:
                    # Of the call that needs the token nothing was sent.
                    raise CallFailed(Failure(Meaning.NOT_SENT, str(failed))) from failed
                raise
            self._token = response.token

    def _endpoints_here(self) -> list[Endpoint]:
        """Of the running event loop: channels belong to one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._renewing, self._idle = asyncio.Lock(), asyncio.Event()
            self._endpoints = [Endpoint(address, self._dialling) for address in self._address.endpoints]
        return self._endpoints

    def _turn_from(self, endpoint: Endpoint) -> None:
        """Prefer the next endpoint, unless another call has done so."""
        endpoint.forget()
        if self._endpoints[self._preferred] is endpoint:
            self._preferred = (self._preferred + 1) % len(self._endpoints)

    def _check_cluster(self, endpoint: Endpoint, cluster_id: int) -> None:
        if not self._cluster_id:
            self._cluster_id = cluster_id
        if cluster_id and cluster_id != self._cluster_id:
            raise CallFailed(other_cluster(endpoint.name))


def is_repeatable(rpc: Rpc[Any, Any], meaning: Meaning) -> bool:
    return meaning is Meaning.NOT_SENT or (meaning is Meaning.UNKNOWN and not rpc.writes)


def cluster_of(response: Any) -> int:
    """Every response has a header that says it."""
    return int(response.header.cluster_id)


def other_cluster(etcd: str) -> Failure:
    return Failure(
        Meaning.UNKNOWN,
        f"{etcd} belongs to another cluster than before, or than the other endpoints: correct the URL, or, "
        "if it was restored, start the gateway again",
    )


def error_of(failed: CallFailed) -> StoreError:
    match failed.meaning:
        case Meaning.UNKNOWN:
            return OutcomeUnknown(str(failed))
        case Meaning.NO_SPACE:
            return NoSpace(str(failed))
        case Meaning.TOO_LARGE:
            return AnswerTooLarge(str(failed))
        case _:
            return StoreUnavailable(str(failed))
