"""How long changes of topics wait: not at all without time, and else long enough to be stored."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, names_of


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway() as running:
        yield running


async def changes(gateway: InMemoryGateway, timeout_ms: int) -> list[str]:
    """Errors of a creation, a growth of "old" and a deletion of "older"."""
    created = await gateway.ask(
        ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([CreatableTopic("new", 1, 1)], timeout_ms)
    )
    grown = await gateway.ask(
        ApiKey.CREATE_PARTITIONS,
        3,
        CreatePartitionsRequest([CreatePartitionsTopic("old", 2, None)], timeout_ms),
    )
    deleted = await gateway.ask(
        ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["older"], timeout_ms=timeout_ms)
    )
    rows = [created.topics[0], grown.results[0], deleted.responses[0]]
    return names_of([row.error_code for row in rows])


@pytest.mark.parametrize(
    ("timeout_ms", "error", "topics"),
    [
        (1, "NONE", {"new": 1, "old": 2}),
        (0, "REQUEST_TIMED_OUT", {"old": 1, "older": 1}),
        (-1, "REQUEST_TIMED_OUT", {"old": 1, "older": 1}),
    ],
)
async def test_a_change_is_made_if_it_has_any_time(
    gateway: InMemoryGateway, timeout_ms: int, error: str, topics: dict[str, int]
) -> None:
    await gateway.create("old")
    await gateway.create("older")
    assert await changes(gateway, timeout_ms) == [error] * 3
    found = gateway.running.services.topics.all()
    assert {topic.name: len(topic.partitions) for topic in found} == topics
