"""No request holds the event loop for long, and none makes a response out of proportion: all served APIs.

Requests go straight to the router, on the loop that is probed: the probe takes the CPU time of each
iteration.
"""

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from gateway.requests.context import NAMES_ALL_PARTITIONS
from gateway.response import Buffers
from gateway.router import HANDLERS
from gateway.wire.apis import RANGES, ApiKey
from gateway.wire.connection import Request
from gateway.wire.header import RequestHeader
from gateway.wire.messages import codec
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
)
from gateway.wire.messages.generated.alter_configs import AlterConfigsRequest, AlterConfigsResource
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.delete_groups import DeleteGroupsRequest
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.describe_groups import DescribeGroupsRequest
from gateway.wire.messages.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.wire.messages.generated.describe_topic_partitions import DescribeTopicPartitionsRequest
from gateway.wire.messages.generated.describe_topic_partitions import TopicRequest as TopicRequestOfPartitions
from gateway.wire.messages.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from gateway.wire.messages.generated.find_coordinator import FindCoordinatorRequest
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from gateway.wire.messages.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.wire.schema import Field
from ledger.batch.records import Producer, Record, build_batch
from tests.support.caller import Caller, collected_as_in_a_process
from tests.support.in_memory import ANONYMOUS_PRODUCER, InMemoryGateway, in_memory_gateway, records

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
LAST_BY_NAME: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
"""The last versions that name topics."""


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    settings = {
        "limits.request_elements": str(ELEMENTS),
        "limits.partitions": str(PARTITIONS),
        "limits.topic_partitions": "5000",
        "broker.auto.create.topics.enable": "false",
    }
    with collected_as_in_a_process():
        async with in_memory_gateway(settings) as running:
            await running.create(TOPIC, 10)
            yield running


def served() -> list[ApiKey]:
    return [ApiKey(key) for key in sorted(HANDLERS)]


def of_many_elements(key: ApiKey, version: int, count: int) -> list[bytes]:  # noqa: C901 - one case an API
    """For each array of a request, to the second depth, one body with so many elements, small but each
    another."""
    schema = codec.request_schema(key)

    def smallest(struct: type, number: int) -> Any:
        made = struct()
        for field in schema.untagged(struct, version):
            if field.array:
                setattr(made, field.name, [])
            elif field.kind == "string":
                setattr(made, field.name, f"n{number}")
            elif field.name.startswith(("resource_", "pattern_", "operation", "permission_")):
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


@pytest.mark.serial
@pytest.mark.parametrize("key", served(), ids=lambda key: key.name)
async def test_a_request_of_the_most_elements_lets_others_continue(
    key: ApiKey, gateway: InMemoryGateway
) -> None:
    caller, version = Caller(gateway), RANGES[key][1]
    for warm_up in of_many_elements(key, version, 300):
        await caller.ask(key, version, warm_up)
        await caller.ask(ApiKey.API_VERSIONS, 0, b"")
    most = ELEMENTS + (2 * PARTITIONS if key in NAMES_ALL_PARTITIONS else 0)
    for body in of_many_elements(key, version, most):
        _, probe = await asyncio.wait_for(caller.probed(key, version, body), 60)
        probe.slice_s = max(probe.slice_s, await asyncio.wait_for(caller.freed(), 60))
        figures = f"{key.name} of {len(body)} bytes: {probe}"
        if IS_FULL:
            print(figures)  # noqa: T201
        assert probe.slice_s < SLACK * LONGEST_SLICE_S, figures
        assert probe.ping_s < SLACK * LONGEST_PING_S, figures
    assert gateway.running.services.scheduler.held_bytes == gateway.running.services.scheduler.waiting == 0


async def test_batches_after_a_long_produce_keep_their_order(gateway: InMemoryGateway) -> None:
    await gateway.create("wide", 2_000)
    caller, version = Caller(gateway), 8
    long = produce_body(version, range(2_000), b"first")
    short = produce_body(version, range(1), b"second")
    requested = [
        asyncio.ensure_future(caller.answer(ApiKey.PRODUCE, version, body)) for body in (long, short)
    ]
    responses = [
        codec.decode_response(ApiKey.PRODUCE, version, body) for body in await asyncio.gather(*requested)
    ]
    first, second = (response.responses[0].partition_responses for response in responses)
    assert [part.error_code for part in first] == [0] * 2_000
    assert [part.base_offset for part in first] == [0] * 2_000
    assert [(part.error_code, part.base_offset) for part in second] == [(0, 1)]
    assert not caller.services.produce_order.has(7)


async def test_a_long_produce_that_is_cancelled_holds_no_other_back(gateway: InMemoryGateway) -> None:
    await gateway.create("wide", 2_000)
    caller, version = Caller(gateway), 8
    long = produce_body(version, range(2_000), b"gone")
    completion: asyncio.Future[Buffers | None] = asyncio.get_running_loop().create_future()
    request = Request(0, RequestHeader(0, version, 1, "c"), memoryview(long), False)
    under_way = caller.router.start(request, caller.peer, asyncio.get_running_loop().time(), completion)
    assert under_way is not None
    under_way.cancel()
    short = await caller.answer(ApiKey.PRODUCE, version, produce_body(version, range(1), b"here"))
    (result,) = codec.decode_response(ApiKey.PRODUCE, version, short).responses[0].partition_responses
    assert (result.error_code, result.base_offset) == (0, 0)
    await asyncio.sleep(0)
    assert not caller.services.produce_order.has(7) and not caller.services.scheduler.held_bytes


def produce_body(version: int, partitions: range, value: bytes) -> bytes:
    batch = bytes(build_batch([Record(0, 0, None, value)], base_timestamp=1, producer=ANONYMOUS_PRODUCER))
    data = TopicProduceData("wide", partition_data=[PartitionProduceData(i, batch) for i in partitions])
    return codec.encode_request(ApiKey.PRODUCE, version, ProduceRequest(None, -1, 5000, [data]))


NAMED: dict[ApiKey, Any] = {
    ApiKey.PRODUCE: ProduceRequest(
        None, -1, 5000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, None)])] * TIMES
    ),
    ApiKey.LIST_OFFSETS: ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)] * TIMES)]
    ),
    ApiKey.METADATA: MetadataRequest([MetadataRequestTopic(name=TOPIC)] * TIMES),
    ApiKey.OFFSET_COMMIT: OffsetCommitRequest(
        GROUP,
        topics=[OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)] * TIMES)],
    ),
    ApiKey.OFFSET_FETCH: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)] * TIMES),
    ApiKey.FIND_COORDINATOR: FindCoordinatorRequest(coordinator_keys=[GROUP] * TIMES),
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest([GROUP] * TIMES, True),
    ApiKey.CREATE_TOPICS: CreateTopicsRequest(
        [CreatableTopic(f"v{i}", 1, 1) for i in range(TIMES)], 5000, True
    ),
    ApiKey.DELETE_RECORDS: DeleteRecordsRequest(
        [DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 0)] * TIMES)], 5000
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest(
        -1, [OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0, -1, 0)] * TIMES)]
    ),
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest(
        [DescribeConfigsResource(4, "1", None)] * TIMES, True, True
    ),
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest([AlterConfigsResource(2, TOPIC)] * TIMES),
    ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest([DescribableLogDirTopic(TOPIC, [0] * TIMES)]),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 20)] * TIMES, 5000),
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest(["absent"] * TIMES),
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest([DeleteTopicState(TOPIC)] * TIMES, timeout_ms=5000),
    ApiKey.ELECT_LEADERS: ElectLeadersRequest(0, [TopicPartitions(TOPIC, [0] * TIMES)], 5000),
    ApiKey.OFFSET_DELETE: OffsetDeleteRequest(
        GROUP, [OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)] * TIMES)]
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(
        [AlterClientQuotasRequestEntryData([AlterClientQuotasRequestEntityData("user", "u")])] * TIMES
    ),
    ApiKey.DESCRIBE_PRODUCERS: DescribeProducersRequest([TopicRequest(TOPIC, [0] * TIMES)]),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsRequest(
        [TopicRequestOfPartitions(TOPIC)] * TIMES
    ),
}
"""One thing that exists, named again and again; APIs that are not here name one thing only, or a member."""


@pytest.mark.parametrize("key", NAMED, ids=lambda key: key.name)
async def test_one_thing_named_2000_times_makes_no_response_out_of_proportion(
    key: ApiKey, gateway: InMemoryGateway
) -> None:
    for number in range(20):
        await gateway.send(TOPIC, records(1), producer=Producer(1000 + number, 0, 0))
    commit = OffsetCommitRequestTopic(
        TOPIC, partitions=[OffsetCommitRequestPartition(i, 1, -1, "m" * 4000) for i in range(10)]
    )
    await gateway.ask(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(GROUP, topics=[commit]))
    caller, version = Caller(gateway), min(RANGES[key][1], LAST_BY_NAME.get(key, RANGES[key][1]))
    body = codec.encode_request(key, version, NAMED[key])
    tracemalloc.start()
    response = await asyncio.wait_for(caller.ask(key, version, body), 60)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < response <= MAX_RESPONSE_BYTES
    assert peak < 64 * 1024 * 1024
