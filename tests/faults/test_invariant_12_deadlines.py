"""Invariant 12: every wait has a deadline, every queue a bound, every task an owner."""

import ast
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.addresses import Address
from gateway.assembly import HOST
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import build_batch
from ledger.ports import PutOutcome
from ledger.records import FIRST_LEVEL
from ledger.types import DraftBatch, Placement
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records

LATEST_S = 8.0
"""Generous for a noisy machine; the requested deadlines are 1 s and less."""
QUICK = {"ledger.commit_timeout_ms": "500", "limits.drain_ms": "1000"}


class Hanging:
    """When `is_hung`, calls to a store never end by themselves."""

    def __init__(self) -> None:
        self.is_hung = False

    async def pass_or_hang(self) -> None:
        if self.is_hung:
            await asyncio.get_running_loop().create_future()


class HangingMetadata(MemoryMetadata):
    def __init__(self, hanging: Hanging) -> None:
        super().__init__()
        self.hanging = hanging

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await self.hanging.pass_or_hang()
        return await super().put(key, value, expect)


class HangingSegments(MemorySegments):
    def __init__(self, hanging: Hanging) -> None:
        super().__init__()
        self.hanging = hanging

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        await self.hanging.pass_or_hang()
        return await super().write(batches, created_ms, feature_level)


def produce_request() -> ProduceRequest:
    batch = bytes(build_batch(records(1), base_timestamp=1_700_000_000_000))
    return ProduceRequest(
        None, -1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]
    )


def requests_that_need_the_stores() -> Iterator[tuple[ApiKey, int, object]]:
    yield ApiKey.PRODUCE, 8, produce_request()
    yield ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([CreatableTopic("new", 1, 1)], 500)
    yield ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest([], ["old"], 500)
    yield ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(None, 1000)
    yield ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="auto")], True)


async def response_to(gateway_: InMemoryGateway, key: ApiKey, version: int, message: object) -> object:
    def exchange() -> object:
        with Client(Address("127.0.0.1", gateway_.running.bound[0].port), timeout=LATEST_S) as client:
            return client.ask(key, version, message)

    return await asyncio.to_thread(exchange)


@pytest.mark.parametrize("hangs", ["metadata", "segments"])
async def test_invariant_12_every_request_is_answered_although_a_store_hangs(
    hangs: str,
) -> None:
    hanging, sound = Hanging(), Hanging()
    metadata = HangingMetadata(hanging if hangs == "metadata" else sound)
    segments = HangingSegments(hanging if hangs == "segments" else sound)
    opener = replace(HOST.stores, metadata=lambda *_, **__: metadata, segments=lambda *_, **__: segments)
    begun = 0.0
    async with in_memory_gateway(QUICK, replace(HOST, stores=opener)) as running:
        await running.create("t")
        await running.create("old")
        await running.send("t", records(3))
        hanging.is_hung = True
        for key, version, message in requests_that_need_the_stores():
            response = await response_to(running, key, version, message)
            if key is ApiKey.PRODUCE:
                (produced,) = response.responses[0].partition_responses  # type: ignore[attr-defined]
                assert produced.error_code == ErrorCode.REQUEST_TIMED_OUT
        fetch = FetchRequest(
            max_wait_ms=500, min_bytes=1_000_000, topics=[FetchTopic("t", partitions=[FetchPartition(0)])]
        )
        response = await response_to(running, ApiKey.FETCH, 11, fetch)
        assert response.responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
        begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 4 * LATEST_S, "the stop has a deadline too"


async def test_invariant_12_a_commit_that_waits_when_the_gateway_stops_is_answered_at_its_deadline() -> None:
    hanging = Hanging()
    metadata = HangingMetadata(hanging)
    opener = replace(HOST.stores, metadata=lambda *_, **__: metadata)
    settings = {"ledger.commit_timeout_ms": "1000", "limits.drain_ms": "5000"}
    topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])
    commit = OffsetCommitRequest("g", topics=[topic])
    async with in_memory_gateway(settings, replace(HOST, stores=opener)) as running:
        await running.create("t")
        hanging.is_hung = True
        waiting = asyncio.create_task(response_to(running, ApiKey.OFFSET_COMMIT, 8, commit))
        await asyncio.sleep(0.3)
        assert not waiting.done()
    response = await waiting
    (partition,) = response.topics[0].partitions  # type: ignore[attr-defined]
    assert partition.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@cache
def calls_in(package: str) -> Sequence[tuple[str, ast.AST, ast.Call]]:
    """(place, statement that the call is all of, call)."""
    return [
        (f"{file}:{child.lineno}", node, child)
        for file in sorted(Path(package).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.Call)
    ]


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def is_unowned_task(statement: ast.AST, call: ast.Call) -> bool:
    """A task whose handle is dropped; what a task group makes is the group's."""
    if name_of(call) not in ("create_task", "ensure_future") or not isinstance(statement, ast.Expr):
        return False
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    return not (isinstance(receiver, ast.Name) and receiver.id == "tasks")


def test_a_dropped_task_is_seen() -> None:
    dropped = ast.parse("asyncio.create_task(work())").body[0]
    kept = ast.parse("tasks.create_task(work())").body[0]
    assert isinstance(dropped, ast.Expr) and isinstance(dropped.value, ast.Call)
    assert isinstance(kept, ast.Expr) and isinstance(kept.value, ast.Call)
    assert is_unowned_task(dropped, dropped.value)
    assert not is_unowned_task(kept, kept.value)


@pytest.mark.parametrize("package", ["gateway", "adapters"])
def test_invariant_12_every_task_is_kept_by_somebody(package: str) -> None:
    assert not [at for at, node, call in calls_in(package) if is_unowned_task(node, call)]


@pytest.mark.parametrize("package", ["gateway", "adapters"])
def test_invariant_12_every_queue_has_a_bound(package: str) -> None:
    unbounded = [
        at
        for at, _, call in calls_in(package)
        if name_of(call) in ("Queue", "LifoQueue", "PriorityQueue", "SimpleQueue") and not call.args
    ]
    assert not unbounded
