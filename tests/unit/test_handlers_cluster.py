"""Partitions, log directories, producers and leaders, through a whole gateway in memory."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from gateway.cli.client import ClientError
from gateway.config import load_settings
from gateway.handlers.describe_log_dirs import data_directory
from gateway.settings import Settings
from gateway.wire.apis import RANGES, ApiKey
from gateway.wire.messages.generated import describe_producers, describe_topic_partitions
from gateway.wire.messages.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest
from gateway.wire.messages.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest
from gateway.wire.messages.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
)
from gateway.wire.messages.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from gateway.wire.messages.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ledger.batch.records import Producer
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, names_of, records

Cursor = tuple[str, int]


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway() as running:
        yield running


async def page(
    gateway: InMemoryGateway, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> tuple[list[tuple[str, str, list[int]]], Cursor | None]:
    """(error, name, partitions) of each topic, and where the next page begins."""
    requested = [describe_topic_partitions.TopicRequest(name) for name in names]
    at = None if cursor is None else DescribeTopicPartitionsRequestCursor(*cursor)
    request = DescribeTopicPartitionsRequest(requested, limit, at)
    response = await gateway.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    topics = [
        (names_of([t.error_code])[0], t.name, [p.partition_index for p in t.partitions])
        for t in response.topics
    ]
    after = response.next_cursor
    return topics, None if after is None else (after.topic_name, after.partition_index)


async def test_topics_are_described_by_name_in_order(gateway: InMemoryGateway) -> None:
    await gateway.create("b", 2)
    await gateway.create("a", 1)
    everything = [("NONE", "a", [0]), ("NONE", "b", [0, 1])]
    assert await page(gateway) == (everything, None)
    assert await page(gateway, "b", "a", "b") == (everything, None)
    assert await page(gateway, "nope", "a b", "a") == (
        [
            ("NONE", "a", [0]),
            ("INVALID_TOPIC_EXCEPTION", "a b", []),
            ("UNKNOWN_TOPIC_OR_PARTITION", "nope", []),
        ],
        None,
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("names", [(), ("a", "b", "c")])
async def test_the_pages_have_every_partition_once(
    gateway: InMemoryGateway, limit: int, names: tuple[str, ...]
) -> None:
    for name, count in (("a", 3), ("b", 1), ("c", 2)):
        await gateway.create(name, count)
    returned: list[Cursor] = []
    cursor: Cursor | None = None
    for _ in range(10):
        topics, cursor = await page(gateway, *names, limit=limit, cursor=cursor)
        assert sum(len(partitions) for _, _, partitions in topics) <= limit
        returned += [(name, index) for _, name, partitions in topics for index in partitions]
        if cursor is None:
            break
    assert returned == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
async def test_a_cursor_that_makes_no_sense_is_refused(gateway: InMemoryGateway, cursor: Cursor) -> None:
    await gateway.create("a")
    assert await page(gateway, "a", cursor=cursor) == ([("INVALID_REQUEST", "a", [])], None)


async def log_dirs(
    gateway: InMemoryGateway, version: int, topics: list[DescribableLogDirTopic] | None
) -> tuple[dict[tuple[str, int], int], int, int]:
    """Size of each partition, and the volume's total and usable bytes."""
    response = await gateway.ask(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics))
    (returned,) = response.results
    assert (response.error_code, returned.error_code, returned.log_dir) == (0, 0, "dragoman")
    sizes = {(t.name, p.partition_index): p.partition_size for t in returned.topics for p in t.partitions}
    return sizes, returned.total_bytes, returned.usable_bytes


@pytest.mark.parametrize("version", [1, 5])
async def test_the_log_directory_has_the_sizes_of_partitions(gateway: InMemoryGateway, version: int) -> None:
    await gateway.create("a", 2)
    await gateway.create("b")
    await gateway.send("a", records(3))
    all_sizes, *volume = await log_dirs(gateway, version, None)
    stored = gateway.running.services.shard.state.topics.by_name["a"].partitions[0].size_bytes
    assert stored > 0
    assert all_sizes == {("a", 0): stored, ("a", 1): 0, ("b", 0): 0}
    assert volume == [-1, -1]
    requested = [DescribableLogDirTopic("a", [0, 0, 7]), DescribableLogDirTopic("nope", [0])]
    some_sizes, *_ = await log_dirs(gateway, version, requested)
    assert some_sizes == {("a", 0): stored}


async def test_the_sizes_of_a_data_directorys_volume_are_returned(tmp_path: Path) -> None:
    async with in_memory_gateway(
        {"storage.data": f"file:{tmp_path}", "storage.metadata": ""} | {"storage.data_dir": str(tmp_path)}
    ) as gateway:
        _, total, usable = await log_dirs(gateway, 4, None)
        assert 0 < usable < total


def test_records_are_in_the_data_directory_or_at_the_url() -> None:
    def directory(**storage: str) -> Path | None:
        return data_directory(load_settings({f"storage.{k}": v for k, v in storage.items()}, {}))

    assert data_directory(Settings()) == Path("data")
    assert directory(data_dir="/d") == Path("/d")
    assert directory(data="file:/d") == directory(data="file:///d") == Path("/d")
    assert directory(data="objects+file:/o") == Path("/o")
    assert directory(data="memory:") is None


async def producers_of(
    gateway: InMemoryGateway, topic: str, *partitions: int
) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Error, and (id, epoch, last sequence) of the producers of each partition."""
    request = DescribeProducersRequest([describe_producers.TopicRequest(topic, list(partitions))])
    (returned,) = (await gateway.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request)).topics
    results = []
    for part in returned.partitions:
        states = [(p.producer_id, p.producer_epoch, p.last_sequence) for p in part.active_producers]
        assert all(p.coordinator_epoch == p.current_txn_start_offset == -1 for p in part.active_producers)
        assert all(p.last_timestamp > 1_700_000_000_000 for p in part.active_producers)
        results.append((names_of([part.error_code])[0], states))
    return results


async def test_producers_with_an_id_are_reported_with_their_last_sequence(gateway: InMemoryGateway) -> None:
    await gateway.create("t", 2)
    await gateway.send("t", records(3), producer=Producer(70, 0, 0))
    await gateway.send("t", records(2), producer=Producer(70, 0, 3))
    await gateway.send("t", records(1), producer=Producer(71, 4, 0))
    await gateway.send("t", records(1), partition=1)
    assert await producers_of(gateway, "t", 0, 1, 2) == [
        ("NONE", [(70, 0, 4), (71, 4, 0)]),
        ("NONE", []),
        ("UNKNOWN_TOPIC_OR_PARTITION", []),
    ]
    assert await producers_of(gateway, "nope", 0) == [("UNKNOWN_TOPIC_OR_PARTITION", [])]
    assert await producers_of(gateway, "a b", 0) == [("INVALID_TOPIC_EXCEPTION", [])]


async def elect(
    gateway: InMemoryGateway, version: int, topics: list[TopicPartitions] | None, kind: int = 0
) -> tuple[str, dict[str, list[str]]]:
    response = await gateway.ask(ApiKey.ELECT_LEADERS, version, ElectLeadersRequest(kind, topics, 5000))
    results = {
        result.topic: names_of([part.error_code for part in result.partition_result])
        for result in response.replica_election_results
    }
    return names_of([response.error_code])[0], results


@pytest.mark.parametrize("version", [0, 2])
async def test_no_leader_needs_to_be_elected(gateway: InMemoryGateway, version: int) -> None:
    await gateway.create("t", 1)
    requested = [TopicPartitions("t", [0, 1]), TopicPartitions("nope", [0])]
    assert await elect(gateway, version, requested) == (
        "NONE",
        {"t": ["ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"], "nope": ["UNKNOWN_TOPIC_OR_PARTITION"]},
    )
    assert await elect(gateway, version, None) == ("NONE", {"t": []})


async def test_an_unknown_kind_of_election_is_refused(gateway: InMemoryGateway) -> None:
    await gateway.create("t", 1)
    assert (await elect(gateway, 2, [TopicPartitions("t", [0])], 1))[0] == "NONE"
    refused = ("INVALID_REQUEST", {"t": ["INVALID_REQUEST"]})
    assert await elect(gateway, 2, [TopicPartitions("t", [0])], 2) == refused
    assert await elect(gateway, 2, None, 2) == ("INVALID_REQUEST", {})


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("brokers", "error"),
    [
        ([1], "NONE"),
        (None, "NO_REASSIGNMENT_IN_PROGRESS"),
        ([2], "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 2], "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 1], "INVALID_REPLICA_ASSIGNMENT"),
        ([], "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
async def test_a_partition_stays_where_it_is(
    gateway: InMemoryGateway, version: int, brokers: list[int] | None, error: str
) -> None:
    await gateway.create("t")
    requested = [ReassignableTopic("t", [ReassignablePartition(index, brokers) for index in (0, 1)])]
    request = AlterPartitionReassignmentsRequest(5000, version == 0, requested)
    response = await gateway.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert (response.error_code, response.allow_replication_factor_change) == (0, version == 0)
    (topic,) = response.responses
    codes = names_of([part.error_code for part in topic.partitions])
    assert codes == [error, "UNKNOWN_TOPIC_OR_PARTITION"]
    request_all = ListPartitionReassignmentsRequest(5000, None)
    request_one = ListPartitionReassignmentsRequest(5000, [ListPartitionReassignmentsTopics("t", [0])])
    for request_list in (request_all, request_one):
        moves = await gateway.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request_list)
        assert (moves.error_code, moves.topics) == (0, [])


async def test_the_reassignments_of_all_partitions_can_be_listed() -> None:
    """As `kafka-topics --describe` requests them: all partitions of all topics."""
    settings = {"limits.request_elements": "1000", "limits.partitions": "2000"}
    async with in_memory_gateway(settings) as gateway:
        topics = [ListPartitionReassignmentsTopics(f"t{number}", [0]) for number in range(2_000)]
        request = ListPartitionReassignmentsRequest(5000, topics)
        moves = await gateway.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
        assert (moves.error_code, moves.topics) == (0, [])


@pytest.mark.parametrize(
    ("key", "request_of", "reason"),
    [
        (
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            lambda names: ListPartitionReassignmentsRequest(
                5000, [ListPartitionReassignmentsTopics(name, []) for name in names]
            ),
            "more than 1300 elements in one request: raise limits.request_elements + 2 x limits.partitions",
        ),
        (
            ApiKey.DELETE_TOPICS,
            lambda names: DeleteTopicsRequest(topic_names=names),
            "more than 1000 elements in one request: raise limits.request_elements",
        ),
    ],
)
async def test_a_request_of_too_many_elements_is_logged_with_the_settings_that_allow_more(
    key: ApiKey, request_of: Callable[[list[str]], object], reason: str
) -> None:
    version = RANGES[key][0]
    async with in_memory_gateway({"limits.request_elements": "1000"}) as gateway:
        with capture_logs() as events, pytest.raises(ClientError):
            await gateway.ask(key, version, request_of([f"t{number}" for number in range(1_400)]))
    (refused,) = [event for event in events if event["event"] == "connection.refused"]
    assert refused["reason"].endswith(f"{int(key)}: {reason}")
