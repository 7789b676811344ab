"""Error codes of failing stores: those of Kafka, since older clients take others as fatal."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gateway.produce.producer_ids import ProducerIds
from gateway.topics.service import TopicService
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ledger.errors import ErrorName, StoreUnavailable
from ledger.requests import Refused
from tests.support.in_memory import InMemoryGateway, in_memory_gateway


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway({"broker.auto.create.topics.enable": "true"}) as running:
        yield running


async def out_of_reach(*_: Any) -> Refused:
    return Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")


@pytest.mark.parametrize("version", [1, 5, 7])
async def test_offsets_of_a_journal_out_of_reach_are_elsewhere(
    gateway: InMemoryGateway, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Java's consumers before 3.9 end at COORDINATOR_NOT_AVAILABLE, and look again at NOT_COORDINATOR."""
    monkeypatch.setattr(TopicService, "barrier", out_of_reach)
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    response = await gateway.ask(ApiKey.OFFSET_FETCH, version, request)
    codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
    if version > 1:
        codes.add(response.error_code)
    assert codes == {ErrorCode.NOT_COORDINATOR}


async def test_offsets_of_several_groups_are_elsewhere_then(
    gateway: InMemoryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TopicService, "barrier", out_of_reach)
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(name, topics=topics) for name in "gh"]
    response = await gateway.ask(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    assert [group.error_code for group in response.groups] == [ErrorCode.NOT_COORDINATOR] * 2


@pytest.mark.parametrize("error", [StoreUnavailable("the disk is full"), TimeoutError()])
async def test_a_producer_id_that_cannot_be_had_now_can_be_soon(
    gateway: InMemoryGateway, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """At COORDINATOR_NOT_AVAILABLE Java looks for the coordinator of its transactional id, which is null."""

    async def fails(*_: Any) -> int:
        raise error

    monkeypatch.setattr(ProducerIds, "take", fails)
    response = await gateway.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(None, 1000))
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_on_a_full_disk_an_idempotent_producer_waits(gateway: InMemoryGateway) -> None:
    gateway.running.shard.growth_refusal = "the disk is full"
    response = await gateway.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(None, 1000))
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("name", ["a_b", "__cluster_metadata"])
async def test_a_topic_that_only_the_controller_refuses_is_unknown_to_metadata(
    gateway: InMemoryGateway, name: str
) -> None:
    """INVALID_TOPIC_EXCEPTION would end a consumer that also reads others."""
    await gateway.create("a.b")
    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (topic,) = (await gateway.ask(ApiKey.METADATA, 9, request)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
