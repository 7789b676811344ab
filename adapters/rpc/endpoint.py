"""One server: its channel, and the calls that go through it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from adapters.rpc.channel import Dial, grpc
from adapters.rpc.failures import CallFailed, Failure, Meaning, answer_refused, is_of_answer, unreached
from adapters.rpc.tls import TlsBytes
from ledger.errors import StoreUnavailable

Request = TypeVar("Request")
Response = TypeVar("Response")
CallMetadata: TypeAlias = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Request, Response]):
    path: str
    response: Callable[[bytes], Response]
    writes: bool = False
    streams: bool = False
    """It has several responses."""


def unreached_by(error: Any, server: str, explain: Callable[[str, str, str], Failure]) -> Failure:
    """Of an error of the first call on a connection, which changes nothing."""
    code, details = error.code().name, error.details() or ""
    if code == "UNAVAILABLE":
        return Failure(Meaning.NOT_SENT, unreached(server, details))
    return explain(server, code, details)


class Endpoint:
    """A channel on one event loop. Calls raise CallFailed."""

    def __init__(
        self,
        dial: Dial,
        rpcs: Sequence[Rpc[Any, Any]],
        explain: Callable[[str, str, str], Failure],
    ) -> None:
        """`explain` makes a failure of the server's name, the name of gRPC's status code, and its details.
        Errors: StoreUnavailable if files of TLS cannot be used."""
        self.name = dial.store
        self._dial = dial
        self._rpcs = rpcs
        self._explain = explain
        self._use(dial.files())
        self._is_checked = False
        self._check: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """See whether the server will do, by a call without effect. CallFailed if it will not."""
        raise NotImplementedError

    async def reach(self) -> None:
        """Return when there is a connection to a server that will do. Nothing that could have an effect is
        sent before. Several callers share one attempt."""
        if self._is_checked and self._channel.get_state() is grpc.ChannelConnectivity.READY:
            return
        if self._check is None:
            self._check = asyncio.create_task(self._checked(), name=f"connect to {self.name}")
            self._check.add_done_callback(self._end_check)
        await asyncio.shield(self._check)

    async def call(
        self, rpc: Rpc[Request, Response], request: Request, metadata: CallMetadata, timeout_s: float
    ) -> Response:
        try:
            response: Response = await self._callables[rpc.path](
                request, timeout=timeout_s, metadata=metadata
            )
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            failed = self._failed(error)
            if rpc.writes and failed.meaning is Meaning.TOO_LARGE and _is_of_answer(error):
                raise CallFailed(answer_refused(self.name)) from error
            raise failed from error
        return response

    async def responses(
        self,
        rpc: Rpc[Request, Response],
        request: Request,
        timeout_s: float,
        take: Callable[[Response], bool],
    ) -> None:
        """Of a call with several: until there are no more, or `take` wants none."""
        call = self._callables[rpc.path](request, timeout=timeout_s)
        try:
            async for response in call:
                if not take(response):
                    return
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise self._failed(error) from error
        finally:
            call.cancel()

    async def first_call(self, rpc: Rpc[Request, Response], request: Request, timeout_s: float) -> Response:
        """For `check`: without a connection it is not sent."""
        try:
            response: Response = await self._callables[rpc.path](request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise CallFailed(unreached_by(error, self.name, self._explain)) from error
        return response

    def forget(self) -> None:
        """Check the server before the next call: gRPC connects again by itself, maybe to another one."""
        self._is_checked = False

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
        await self._channel.close()

    def _use(self, files: TlsBytes | None) -> None:
        self._files = files
        self._channel = self._dial.here(files)
        self._callables: Mapping[str, Any] = MappingProxyType(
            {rpc.path: _callable(self._channel, rpc) for rpc in self._rpcs}
        )

    async def _renew(self) -> None:
        """A channel has the certificates that it was made with: for renewed ones there is a new channel."""
        if self._files is None:
            return
        try:
            files = await asyncio.to_thread(self._dial.files)
        except StoreUnavailable:
            return  # written at this moment; what the channel has may still do
        if files != self._files:
            old = self._channel
            self._use(files)
            await old.close()

    async def _checked(self) -> None:
        await self._renew()
        await self.check()
        self._is_checked = True

    def _end_check(self, check: asyncio.Task[None]) -> None:
        self._check = None
        if not check.cancelled():
            # Its callers may be gone.
            check.exception()

    def _failed(self, error: Any) -> CallFailed:
        """Raises a cancellation of this task again."""
        if not isinstance(error, asyncio.CancelledError):
            return CallFailed(self._explain(self.name, error.code().name, error.details() or ""))
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
        # Not this task is cancelled, but the call, as the channel was closed.
        return CallFailed(Failure(Meaning.UNKNOWN, f"{self.name}: the store was closed meanwhile"))


def _callable(channel: Any, rpc: Rpc[Any, Any]) -> Any:
    kind = channel.unary_stream if rpc.streams else channel.unary_unary
    return kind(rpc.path, request_serializer=serialized, response_deserializer=rpc.response)


def _is_of_answer(error: Any) -> bool:
    return is_of_answer(error.details() or "")


def serialized(request: Any) -> bytes:
    return bytes(request.SerializeToString())
