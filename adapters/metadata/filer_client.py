"""Calls to a SeaweedFS filer, what their errors mean, and what is checked before a filer is used."""

import asyncio
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from adapters.names import check_prefix
from adapters.rpc.caller import Caller, Limits
from adapters.rpc.channel import Dial, grpc, options
from adapters.rpc.endpoint import (
    Endpoint,
    Rpc,
    serialized,
    unreached_by,
)
from adapters.rpc.failures import NO_CONNECTION, CallFailed, Failure, Meaning, brief, unreached
from adapters.rpc.generated import filer_pb2 as pb
from adapters.rpc.tls import Tls
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ledger.ports import SCAN_BYTES

Request = TypeVar("Request")
Response = TypeVar("Response")

SCHEME: Final = "filer://"
DEFAULT_PORT: Final = 18888
"""Of the filer's gRPC: 10,000 above that of its HTTP."""
MAX_RECEIVE_BYTES: Final = 2 * SCAN_BYTES + 64 * 1024
NO_ENTRY: Final = "no entry is found"
_HOST: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")

_FILER: Final = "/filer_pb.SeaweedFiler/"
LOOKUP: Final[Rpc[pb.LookupRequest, pb.LookupResponse]] = Rpc(
    f"{_FILER}LookupDirectoryEntry", pb.LookupResponse.FromString
)
LIST: Final[Rpc[pb.ListRequest, pb.ListResponse]] = Rpc(
    f"{_FILER}ListEntries", pb.ListResponse.FromString, streams=True
)
TRANSACTION: Final[Rpc[pb.TransactionRequest, pb.TransactionResponse]] = Rpc(
    f"{_FILER}ObjectTransaction", pb.TransactionResponse.FromString, writes=True
)
BATCH: Final[Rpc[pb.BatchRequest, pb.BatchResponse]] = Rpc(
    f"{_FILER}ObjectTransactionBatch", pb.BatchResponse.FromString, writes=True
)
CONFIGURATION: Final[Rpc[pb.ConfigurationRequest, pb.ConfigurationResponse]] = Rpc(
    f"{_FILER}GetFilerConfiguration", pb.ConfigurationResponse.FromString
)
RPCS: Final = (LOOKUP, LIST, TRANSACTION, BATCH, CONFIGURATION)


class FilerAddress(NamedTuple):
    endpoint: str
    root: str
    """The directory below which all keys are: `/` and its path."""

    def __str__(self) -> str:
        return f"the filer at {self.endpoint}"


def address_of(url: str) -> FilerAddress:
    """Of `filer://HOST[:PORT]/ROOT`. ValueError with one sentence, which repeats nothing that could be a
    password."""
    host, slash, root = url.removeprefix(SCHEME).partition("/")
    found = _HOST.fullmatch(host)
    port = int(found["port"] or DEFAULT_PORT) if found is not None else 0
    if not url.startswith(SCHEME) or not slash or not 0 < port < 65536 or found is None or "?" in root:
        raise ValueError(
            "the URL of a filer is filer://HOST[:PORT]/ROOT: one host, the port of its gRPC, no user, "
            "no options"
        )
    return FilerAddress(
        f"{found['host']}:{port}", f"/{check_prefix(root, 'the directory in the URL of a filer')}"
    )


def explained(filer: str, code: str, details: str) -> Failure:
    """What an error means. `code` is the name of gRPC's status code, `details` its text."""
    if "message larger than max" in details:
        return Failure(Meaning.TOO_LARGE, f"{filer} does not take or send messages of this size")
    match code:
        case "UNIMPLEMENTED":
            return Failure(
                Meaning.REFUSED,
                f"{filer} is no SeaweedFS filer of version 4.44 or newer: correct the URL, or upgrade it",
            )
        case "PERMISSION_DENIED" | "UNAUTHENTICATED":
            return Failure(
                Meaning.REFUSED, f"{filer} refuses the call ({brief(details)}): set its certificates"
            )
        case "DEADLINE_EXCEEDED":
            return Failure(
                Meaning.UNKNOWN, f"{filer} did not answer in time: look at its disks and at the network"
            )
        case "UNAVAILABLE" if NO_CONNECTION in details:
            return Failure(Meaning.NOT_SENT, unreached(filer, details))
    return Failure(Meaning.UNKNOWN, f"{filer} failed: {brief(details) or code}")


def dial_to(address: FilerAddress, tls: Tls | None, limits: Limits) -> Dial:
    return Dial(address.endpoint, tls, options(MAX_RECEIVE_BYTES, limits.connect_s), str(address))


def error_of(failed: CallFailed) -> StoreError:
    return (OutcomeUnknown if failed.meaning is Meaning.UNKNOWN else StoreUnavailable)(str(failed))


class FilerClient:
    """Calls to one filer."""

    def __init__(self, address: FilerAddress, tls: Tls | None, limits: Limits) -> None:
        self._address = address
        self._tls = tls
        self._limits = limits
        self._caller = Caller(str(address), limits, 1, error_of)
        self._filer: _Filer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Plain, blocking code. StoreUnavailable with one sentence for the operator if it will not do."""
        name = str(self._address)
        with dial_to(self._address, self._tls, self._limits).blocking() as channel:
            # Without mutations it changes nothing. An older filer does not know it.
            trial = pb.TransactionRequest(lock_key=self._address.root, route_key=self._address.root)
            call = channel.unary_unary(
                TRANSACTION.path,
                request_serializer=serialized,
                response_deserializer=TRANSACTION.response,
            )
            try:
                call(trial, timeout=self._limits.connect_s)
            except grpc.RpcError as error:
                raise StoreUnavailable(unreached_by(error, name, explained).sentence) from error

    async def call(self, rpc: Rpc[Request, Response], request: Request) -> Response:
        """StoreUnavailable: it certainly had no effect. OutcomeUnknown: it may have had one."""

        async def attempt(until: float) -> Response:
            filer = await self._reached()
            return await filer.call(rpc, request, (), self._limits.left_s(until))

        return await self._caller.until_answered(attempt, writes=rpc.writes)

    async def look_up(self, directory: str, name: str) -> pb.Entry | None:
        async def attempt(until: float) -> pb.Entry | None:
            filer = await self._reached()
            request = pb.LookupRequest(directory=directory, name=name)
            try:
                return (await filer.call(LOOKUP, request, (), self._limits.left_s(until))).entry
            except CallFailed as failed:
                if NO_ENTRY in str(failed):
                    return None
                raise

        return await self._caller.until_answered(attempt, writes=False)

    async def listed(self, request: pb.ListRequest, is_enough: Callable[[pb.Entry], bool]) -> list[pb.Entry]:
        """Entries of a directory in the order of their names, up to the first with which there are enough."""

        async def attempt(until: float) -> list[pb.Entry]:
            filer = await self._reached()
            entries: list[pb.Entry] = []

            def take(response: pb.ListResponse) -> bool:
                entries.append(response.entry)
                return not is_enough(response.entry)

            await filer.responses(LIST, request, self._limits.left_s(until), take)
            return entries

        return await self._caller.until_answered(attempt, writes=False)

    async def close(self) -> None:
        """After the calls that are under way. Idempotent."""
        if (
            await self._caller.close()
            and self._loop is asyncio.get_running_loop()
            and self._filer is not None
        ):
            await self._filer.close()

    async def _reached(self) -> "_Filer":
        loop = asyncio.get_running_loop()
        if self._filer is None or self._loop is not loop:
            self._filer, self._loop = _Filer(self._address, self._tls, self._limits), loop
        filer = self._filer
        try:
            await filer.reach()
        except CallFailed as failed:
            filer.forget()
            raise CallFailed(Failure(Meaning.NOT_SENT, str(failed))) from failed
        return filer


class _Filer(Endpoint):
    def __init__(self, address: FilerAddress, tls: Tls | None, limits: Limits) -> None:
        super().__init__(dial_to(address, tls, limits), RPCS, explained)
        self._connect_s = limits.connect_s

    async def check(self) -> None:
        await self.first_call(CONFIGURATION, pb.ConfigurationRequest(), self._connect_s)
