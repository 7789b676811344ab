"""Requests whose responses are much longer than they are."""

from typing import Final

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.hostile.arena import Arena, Bounds
from tests.hostile.speaking import ask, batches_of_producers, exchange, produce
from tests.support.messages import message

CPU: Final = Bounds(cpu_s=0.5)
BROKER: Final = 4
OFFSETS: Final = 1000
HONEST_OFFSETS: Final = 50_000
ANSWER_BYTES: Final = 16 * 1024 * 1024


def create(arena: Arena, name: str, partitions: int = 1) -> None:
    body = CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 30_000, False)
    (topic,) = ask(arena, ApiKey.CREATE_TOPICS, 5, body).topics
    assert topic.error_code == 0, topic


def producers(arena: Arena, count: int) -> str:
    """A topic with one partition of `count` producers."""
    name = f"producers-{count}"

    def lay_out() -> str:
        create(arena, name)
        frames = [produce(name, 0, batch) for batch in batches_of_producers(range(10_000, 10_000 + count))]
        for at in range(0, count, 500):
            assert all(isinstance(response, bytes) for response in exchange(arena, *frames[at : at + 500]))
        return name

    made: str = arena.once(name, lay_out)
    return made


@pytest.mark.parametrize(
    ("count", "times"),
    [
        (5200, 20),
        (5200, 200),
        (6000, 1500),
        pytest.param(6000, 4000, marks=pytest.mark.full),
        pytest.param(6000, 400_000, marks=pytest.mark.full),
    ],
)
def test_producers_of_a_partition_that_is_named_often(arena: Arena, count: int, times: int) -> None:
    topic = producers(arena, count)
    body = DescribeProducersRequest([TopicRequest(topic, [0] * times)])
    frame = message(ApiKey.DESCRIBE_PRODUCERS, 0, body)
    arena.withstands(
        f"DescribeProducers, {count:,} producers {times:,} times", lambda: send(arena, frame), CPU
    )


@pytest.mark.parametrize("times", [2000, 8000, pytest.param(400_000, marks=pytest.mark.full)])
def test_configs_of_a_broker_that_is_named_often(arena: Arena, times: int) -> None:
    body = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)] * times, True, True)
    frame = message(ApiKey.DESCRIBE_CONFIGS, 4, body)
    arena.withstands(f"DescribeConfigs, broker {times:,} times", lambda: send(arena, frame), CPU)


@pytest.mark.parametrize("names", [10_000, pytest.param(50_000, marks=pytest.mark.full)])
def test_topics_that_are_only_validated(arena: Arena, names: int) -> None:
    topics = [CreatableTopic(f"v{i:06}", 1, 1) for i in range(names)]
    frame = message(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics, 30_000, True))
    bounds = Bounds(cpu_s=0.5 * names / 10_000)

    def run() -> None:
        # Each is another name, so nothing is repeated in the response.
        exchange(arena, frame)

    arena.withstands(f"CreateTopics, {names:,} names to validate", run, bounds)


def commit_offsets(arena: Arena, group: str, count: int) -> None:
    create(arena, f"of-{group}", count)
    for at in range(0, count, OFFSETS):
        parts = [OffsetCommitRequestPartition(i, 1) for i in range(at, min(count, at + OFFSETS))]
        body = OffsetCommitRequest(
            group, -1, "", topics=[OffsetCommitRequestTopic(f"of-{group}", partitions=parts)]
        )
        response = ask(arena, ApiKey.OFFSET_COMMIT, 7, body)
        assert not any(part.error_code for topic in response.topics for part in topic.partitions)


@pytest.mark.parametrize("times", [300, 4190, pytest.param(40_000, marks=pytest.mark.full)])
def test_offsets_of_a_group_that_is_named_often(arena: Arena, times: int) -> None:
    arena.once("group", lambda: commit_offsets(arena, "g", OFFSETS))
    groups = [OffsetFetchRequestGroup("g", None, -1, None)] * times
    frame = message(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    arena.withstands(
        f"OffsetFetch, {OFFSETS:,} offsets {times:,} times", lambda: send(arena, frame), Bounds(cpu_s=0.6)
    )


def test_the_offsets_of_a_large_group_pass_whole(arena: Arena) -> None:
    # A topic has at most 10,000 partitions.
    for i in range(HONEST_OFFSETS // 10_000):
        arena.once(f"honest-{i}", lambda i=i: commit_offsets(arena, f"honest-{i}", 10_000))  # type: ignore[misc]
    groups = [OffsetFetchRequestGroup(f"honest-{i}", None, -1, None) for i in range(HONEST_OFFSETS // 10_000)]

    def run() -> None:
        response = ask(arena, ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
        found = [part for group in response.groups for topic in group.topics for part in topic.partitions]
        assert len(found) == HONEST_OFFSETS and all(part.committed_offset == 1 for part in found)

    arena.withstands(f"OffsetFetch, {HONEST_OFFSETS:,} honest offsets", run)


def send(arena: Arena, frame: bytes) -> None:
    """Either a response within the bound, or closed."""
    (response,) = exchange(arena, frame)
    assert not isinstance(response, bytes) or len(response) <= ANSWER_BYTES
