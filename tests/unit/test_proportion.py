"""No request holds the event loop for long, and none makes a response out of proportion: all served APIs.

Requests go straight to the router, on the loop that is probed: the probe takes the CPU time of each
iteration.
"""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from gateway.cli.process import COLLECTOR
from gateway.connection import Peer
from gateway.context import NAMES_ALL_PARTITIONS
from gateway.router import HANDLERS, RequestRouter
from gateway.wire.apis import RANGES, ApiKey
from gateway.wire.connection import Request
from gateway.wire.header import RequestHeader
from gateway.wire.messages import codec
from gateway.wire.schema import Field
from ledger.types import Buffer
from tests.support.in_memory import InMemoryGateway, in_memory_gateway

SLACK: Final = 5.0
"""For machines that do other work besides."""
LONGEST_SLICE_S: Final = 0.020
LONGEST_PING_S: Final = 0.25
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
TIMES: Final = 2_000
IS_FULL: Final = bool(os.environ.get("DRAGOMAN_TEST_FULL"))
ELEMENTS: Final = 50_000 if IS_FULL else 10_000
PARTITIONS: Final = 200_000 if IS_FULL else 5_000
GROUP, TOPIC = "readers", "t.opic"


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    settings = {
        "limits.request_elements": str(ELEMENTS),
        "limits.partitions": str(PARTITIONS),
        "limits.topic_partitions": "5000",
        "broker.auto.create.topics.enable": "false",
    }
    # As in a process of its own (`gateway.cli.process`): what is there already is not looked at again.
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR)
    try:
        async with in_memory_gateway(settings) as running:
            await running.create(TOPIC, 10)
            yield running
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


class Told:
    """The reply of a request that has no task."""

    def __init__(self) -> None:
        self.buffers: asyncio.Future[Sequence[Buffer] | None] = asyncio.get_running_loop().create_future()

    def answer(self, buffers: Sequence[Buffer] | None) -> None:
        self.buffers.set_result(buffers)

    def fail(self, error: Exception) -> None:
        self.buffers.set_exception(error)


@dataclass
class Probe:
    """The longest iteration of the loop, in CPU seconds of its thread, and the longest ping."""

    slice_s: float = 0.0
    ping_s: float = 0.0


class Caller:
    """Gives requests to a router as a connection does."""

    def __init__(self, gateway: InMemoryGateway) -> None:
        self.router = RequestRouter(gateway.running.services)
        self.peer = Peer(7, gateway.running.listeners[0], "10.0.0.1")

    async def ask(self, key: ApiKey, version: int, body: bytes) -> int:
        """The bytes of the response."""
        request = Request(0, RequestHeader(int(key), version, 1, "c"), memoryview(body), False)
        now = asyncio.get_running_loop().time()
        if self.router.is_pipelined(key) or self.router.is_prompt(key):
            told = Told()
            self.router.start(request, self.peer, now, told)
            buffers = await told.buffers
        else:
            buffers = await self.router.answer(request, self.peer, now, lambda release: release())
        return sum(map(len, buffers or ()))

    async def probed(self, key: ApiKey, version: int, body: bytes) -> tuple[int, Probe]:
        probe, asked = Probe(), asyncio.ensure_future(self.ask(key, version, body))
        before, waiting = time.thread_time(), asyncio.ensure_future(self._ping(probe, asked))
        while not asked.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            probe.slice_s, before = max(probe.slice_s, now - before), now
        await waiting
        return asked.result(), probe

    async def _ping(self, probe: Probe, asked: "asyncio.Future[int]") -> None:
        while not asked.done():
            began = time.perf_counter()
            await self.ask(ApiKey.API_VERSIONS, 0, b"")
            probe.ping_s = max(probe.ping_s, time.perf_counter() - began)
            await asyncio.sleep(0.005)


def served() -> list[ApiKey]:
    return [ApiKey(key) for key in sorted(HANDLERS)]


def of_many_elements(key: ApiKey, version: int, count: int) -> list[bytes]:
    """For each array of a request, to the second depth, one body with so many elements, small but each
    another."""
    schema = codec.request_schema(key)

    def smallest(struct: type, number: int) -> Any:
        made = struct()
        for field in schema.untagged(struct, version):
            if field.array:
                setattr(made, field.name, [])
            elif field.kind == "string":
                setattr(made, field.name, None if field.is_nullable(version) else f"n{number}")
            elif field.kind == "int8":
                setattr(made, field.name, 2)  # for ACLs, whose zeros are malformed
            elif field.name == "acks":
                made.acks = -1
            elif field.name in ("timeout_ms", "session_timeout_ms", "rebalance_timeout_ms"):
                setattr(made, field.name, 10_000)
        return made

    def many(field: Field, count: int) -> list[Any]:
        kind = field.kind
        return [smallest(kind, i) if isinstance(kind, type) else scalar(field, i) for i in range(count)]

    bodies = []
    for field in schema.untagged(schema.root, version):
        if not field.array:
            continue
        body = smallest(schema.root, 0)
        setattr(body, field.name, many(field, count))
        bodies.append(codec.encode_request(key, version, body))
        for inner in schema.untagged(field.kind, version) if isinstance(field.kind, type) else ():
            if inner.array and isinstance(field.kind, type):
                one = smallest(field.kind, 0)
                for named in ("name", "topic", "topic_name", "resource_name"):
                    if hasattr(one, named):
                        setattr(one, named, TOPIC)
                if hasattr(one, "resource_type"):
                    one.resource_type = 2
                setattr(one, inner.name, many(inner, count - 1))
                setattr(body, field.name, [one])
                bodies.append(codec.encode_request(key, version, body))
    return bodies


def scalar(field: Field, number: int) -> Any:
    if field.kind == "string":
        return f"n{number}"
    if field.kind == "uuid":
        return number.to_bytes(16, "big")
    return number % 100 if field.kind == "int8" else number


@pytest.mark.parametrize("key", served(), ids=lambda key: key.name)
async def test_a_request_of_the_most_elements_lets_others_go_on(
    key: ApiKey, gateway: InMemoryGateway
) -> None:
    caller, version = Caller(gateway), RANGES[key][1]
    for warm_up in of_many_elements(key, version, 300):
        await caller.ask(key, version, warm_up)
        await caller.ask(ApiKey.API_VERSIONS, 0, b"")
    most = ELEMENTS + (2 * PARTITIONS if key in NAMES_ALL_PARTITIONS else 0)
    for body in of_many_elements(key, version, most):
        _, probe = await asyncio.wait_for(caller.probed(key, version, body), 60)
        figures = f"{key.name} of {len(body)} bytes: {probe}"
        if IS_FULL:
            print(figures)  # noqa: T201
        assert probe.slice_s < SLACK * LONGEST_SLICE_S, figures
        assert probe.ping_s < SLACK * LONGEST_PING_S, figures
    assert gateway.running.services.scheduler.held_bytes == gateway.running.services.scheduler.waiting == 0
