"""CreatePartitions, DeleteRecords and OffsetForLeaderEpoch through a whole gateway in memory."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, names_of, records

EARLIEST, LATEST = -2, -1
HIGH_WATERMARK = -1
NO_EPOCH = -1


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway() as running:
        yield running


async def grow(
    gateway: InMemoryGateway, *topics: CreatePartitionsTopic, version: int = 3, dry: bool = False
) -> dict[str, str]:
    request = CreatePartitionsRequest(list(topics), 5000, dry)
    results = (await gateway.ask(ApiKey.CREATE_PARTITIONS, version, request)).results
    return dict(zip([r.name for r in results], names_of([r.error_code for r in results]), strict=True))


async def partition_count(gateway: InMemoryGateway, name: str) -> int:
    request = MetadataRequest([MetadataRequestTopic(name=name)])
    (topic,) = (await gateway.ask(ApiKey.METADATA, 12, request)).topics
    return len(topic.partitions)


async def trim(
    gateway: InMemoryGateway, *parts: tuple[str, int, int], version: int = 2
) -> dict[tuple[str, int], tuple[str, int]]:
    """Error and low watermark of each partition."""
    topics: dict[str, DeleteRecordsTopic] = {}
    for name, partition, offset in parts:
        topic = topics.setdefault(name, DeleteRecordsTopic(name))
        topic.partitions.append(DeleteRecordsPartition(partition, offset))
    request = DeleteRecordsRequest(list(topics.values()), 5000)
    response = await gateway.ask(ApiKey.DELETE_RECORDS, version, request)
    return {
        (topic.name, part.partition_index): (names_of([part.error_code])[0], part.low_watermark)
        for topic in response.topics
        for part in topic.partitions
    }


async def offset_at(gateway: InMemoryGateway, name: str, timestamp: int) -> int:
    topic = ListOffsetsTopic(name, [ListOffsetsPartition(0, NO_EPOCH, timestamp)])
    response = await gateway.ask(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(-1, topics=[topic]))
    return int(response.topics[0].partitions[0].offset)


async def epoch_end(
    gateway: InMemoryGateway, name: str, epoch: int, current: int = NO_EPOCH, version: int = 4
) -> tuple[str, int, int]:
    """Error, epoch and end offset."""
    topic = OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, current, epoch)])
    request = OffsetForLeaderEpochRequest(-1, [topic])
    response = await gateway.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    (part,) = response.topics[0].partitions
    return names_of([part.error_code])[0], part.leader_epoch, part.end_offset


@pytest.mark.parametrize("version", [0, 3])
async def test_a_topic_grows_and_its_new_partitions_take_records(
    gateway: InMemoryGateway, version: int
) -> None:
    await gateway.create("t", 2)
    assert await grow(gateway, CreatePartitionsTopic("t", 5, None), version=version) == {"t": "NONE"}
    assert await partition_count(gateway, "t") == 5
    assert await gateway.send("t", records(3), partition=4) == 0


@pytest.mark.parametrize("count", [2, 1, 0, -1])
async def test_a_topic_never_shrinks(gateway: InMemoryGateway, count: int) -> None:
    await gateway.create("t", 2)
    for dry in (True, False):
        results = await grow(gateway, CreatePartitionsTopic("t", count, None), dry=dry)
        assert results == {"t": "INVALID_PARTITIONS"}
    assert await partition_count(gateway, "t") == 2


async def test_growth_that_is_only_validated_adds_nothing(gateway: InMemoryGateway) -> None:
    await gateway.create("t", 2)
    assert await grow(gateway, CreatePartitionsTopic("t", 4, None), dry=True) == {"t": "NONE"}
    assert await partition_count(gateway, "t") == 2


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ([[1], [1]], "NONE"),
        ([], "INVALID_REPLICA_ASSIGNMENT"),
        ([[1]], "INVALID_REPLICA_ASSIGNMENT"),
        ([[1], [2]], "INVALID_REPLICA_ASSIGNMENT"),
        ([[1], []], "INVALID_REPLICA_ASSIGNMENT"),
        ([[1, 1], [1]], "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
async def test_new_partitions_may_be_assigned_to_this_gateway_only(
    gateway: InMemoryGateway, assignments: list[list[int]], error: str
) -> None:
    await gateway.create("t", 2)
    given = [CreatePartitionsAssignment(brokers) for brokers in assignments]
    assert await grow(gateway, CreatePartitionsTopic("t", 4, given)) == {"t": error}
    assert await partition_count(gateway, "t") == (4 if error == "NONE" else 2)


async def test_one_topic_that_cannot_grow_fails_no_other(gateway: InMemoryGateway) -> None:
    await gateway.create("a")
    await gateway.create("twice")
    requested = [CreatePartitionsTopic(name, 2, None) for name in ("a", "twice", "nope", "twice")]
    assert await grow(gateway, *requested) == {
        "a": "NONE",
        "twice": "INVALID_REQUEST",
        "nope": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert await partition_count(gateway, "twice") == 1


async def test_growth_ends_at_the_limits(gateway: InMemoryGateway) -> None:
    await gateway.create("a", 60)
    await gateway.create("b", 60)
    assert await grow(gateway, CreatePartitionsTopic("a", 101, None)) == {"a": "POLICY_VIOLATION"}
    assert await grow(gateway, CreatePartitionsTopic("a", 91, None)) == {"a": "POLICY_VIOLATION"}
    assert await grow(gateway, CreatePartitionsTopic("a", 90, None)) == {"a": "NONE"}


@pytest.mark.parametrize("version", [0, 2])
async def test_records_are_deleted_up_to_an_offset(gateway: InMemoryGateway, version: int) -> None:
    await gateway.create("t")
    await gateway.send("t", records(6))
    assert await trim(gateway, ("t", 0, 2), version=version) == {("t", 0): ("NONE", 2)}
    assert await offset_at(gateway, "t", EARLIEST) == 2
    assert await trim(gateway, ("t", 0, 1), version=version) == {("t", 0): ("NONE", 2)}
    assert await trim(gateway, ("t", 0, HIGH_WATERMARK), version=version) == {("t", 0): ("NONE", 6)}
    assert await offset_at(gateway, "t", EARLIEST) == await offset_at(gateway, "t", LATEST) == 6


@pytest.mark.parametrize("offset", [7, -2, 2**62])
async def test_no_records_are_deleted_beyond_the_high_watermark(
    gateway: InMemoryGateway, offset: int
) -> None:
    await gateway.create("t")
    await gateway.send("t", records(6))
    assert await trim(gateway, ("t", 0, offset)) == {("t", 0): ("OFFSET_OUT_OF_RANGE", -1)}
    assert await offset_at(gateway, "t", EARLIEST) == 0


async def test_each_partition_has_a_result_of_its_own(gateway: InMemoryGateway) -> None:
    await gateway.create("t", 2)
    await gateway.send("t", records(4))
    requested = [("t", 0, 1), ("t", 0, 3), ("t", 1, 0), ("t", 2, 0), ("nope", 0, 0)]
    assert await trim(gateway, *requested) == {
        ("t", 0): ("NONE", 3),
        ("t", 1): ("NONE", 0),
        ("t", 2): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
        ("nope", 0): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
    }


@pytest.mark.parametrize(
    ("policy", "result"),
    [("compact", ("POLICY_VIOLATION", -1)), ("compact,delete", ("NONE", 2)), ("", ("NONE", 2))],
)
async def test_topics_that_are_only_compacted_keep_their_records(
    gateway: InMemoryGateway, policy: str, result: tuple[str, int]
) -> None:
    await gateway.create("t", cleanup_policy=policy)
    await gateway.send("t", records(4))
    assert await trim(gateway, ("t", 0, 2)) == {("t", 0): result}


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_epoch_0_ends_at_the_high_watermark_and_no_later_one_is_known(
    gateway: InMemoryGateway, version: int
) -> None:
    await gateway.create("t")
    await gateway.send("t", records(6))
    assert await epoch_end(gateway, "t", 0, version=version) == ("NONE", 0, 6)
    assert await epoch_end(gateway, "t", 0, current=0, version=version) == ("NONE", 0, 6)
    assert await epoch_end(gateway, "t", 1, version=version) == ("NONE", -1, -1)
    assert await epoch_end(gateway, "t", -1, version=version) == ("NONE", -1, -1)


async def test_a_consumer_with_another_leader_epoch_gets_an_error(gateway: InMemoryGateway) -> None:
    await gateway.create("t")
    assert await epoch_end(gateway, "t", 0, current=1) == ("UNKNOWN_LEADER_EPOCH", -1, -1)
    assert await epoch_end(gateway, "t", 0, current=-2) == ("FENCED_LEADER_EPOCH", -1, -1)
    assert await epoch_end(gateway, "nope", 0) == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)
