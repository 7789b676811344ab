"""Requests straight to the router of a gateway, on the loop that is probed: the probe takes the CPU time of
each iteration."""

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.cli.process import COLLECTOR
from gateway.network.pipeline import Peer
from gateway.response import Buffers
from gateway.router import RequestRouter
from gateway.security.principals import ANONYMOUS
from gateway.wire.apis import ApiKey
from gateway.wire.connection import Request
from gateway.wire.header import RequestHeader
from ledger.types import Buffer
from tests.support.in_memory import InMemoryGateway
from tests.support.quiet import as_if_quiet


@contextmanager
def collected_as_in_a_process() -> Iterator[None]:
    """The garbage collector as in a process of its own (`gateway.cli.process`): what is there already is not
    looked at again."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@dataclass
class Probe:
    """The longest iteration of the loop, in CPU seconds of its thread on a quiet machine, and the longest
    ping."""

    slice_s: float = 0.0
    ping_s: float = 0.0


class Caller:
    """Gives requests to a router as a connection does."""

    def __init__(self, gateway: InMemoryGateway) -> None:
        self.services = gateway.running.services
        self.router = RequestRouter(self.services)
        self.peer = Peer(7, gateway.running.listeners[0], "10.0.0.1", ANONYMOUS)

    async def ask(self, key: ApiKey, version: int, body: bytes) -> int:
        """The length of the response."""
        return sum(map(len, await self._buffers(key, version, body)))

    async def answer(self, key: ApiKey, version: int, body: bytes) -> memoryview:
        """The body of the response."""
        _, *buffers = await self._buffers(key, version, body)
        return memoryview(b"".join(buffers))

    async def _buffers(self, key: ApiKey, version: int, body: bytes) -> Sequence[Buffer]:
        request = Request(0, RequestHeader(int(key), version, 1, "c"), memoryview(body), False)
        now = asyncio.get_running_loop().time()
        if self.router.is_pipelined(key) or self.router.is_inline(key):
            completion: asyncio.Future[Buffers | None] = asyncio.get_running_loop().create_future()
            self.router.start(request, self.peer, now, completion)
            buffers = await completion
        else:
            response = await self.router.answer(request, self.peer, now)
            buffers = None if response is None else response.buffers
        return buffers or ()

    async def probed(self, key: ApiKey, version: int, body: bytes) -> tuple[int, Probe]:
        probe, requested = Probe(), asyncio.ensure_future(self.ask(key, version, body))
        before, waiting = time.thread_time(), asyncio.ensure_future(self._ping(probe, requested))
        while not requested.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            probe.slice_s, before = max(probe.slice_s, now - before), now
        probe.slice_s = as_if_quiet(probe.slice_s)
        await waiting
        return requested.result(), probe

    async def freed(self) -> float:
        """The longest iteration, in CPU seconds of a quiet machine, until all objects of requests are
        freed."""
        longest, before = 0.0, time.thread_time()
        while self.services.scheduler.held_bytes or self.services.scheduler.waiting:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now
        return as_if_quiet(longest)

    async def _ping(self, probe: Probe, requested: "asyncio.Future[int]") -> None:
        while not requested.done():
            began = time.perf_counter()
            await self.ask(ApiKey.API_VERSIONS, 0, b"")
            probe.ping_s = max(probe.ping_s, time.perf_counter() - began)
            await asyncio.sleep(0.005)
