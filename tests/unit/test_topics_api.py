"""Topics, configs and cluster as clients see them, through a whole gateway in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from gateway.addresses import Address
from gateway.assembly import RunningGateway, running_gateway
from gateway.cli.client import Client, ClientError
from gateway.config import load_settings
from gateway.router import HANDLERS
from gateway.settings import Settings
from gateway.wire.apis import RANGES, ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.wire.messages.generated.describe_cluster import DescribeClusterRequest
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from tests.support.raw import raw_exchange, request

IN_MEMORY = {
    "listeners.listen": "PLAINTEXT://127.0.0.1:0",
    "admin.listen": "",
    "storage.metadata": "memory:",
    "storage.data": "memory:",
    "storage.allow_unsafe_acks": "true",
    "limits.topic_partitions": "100",
    "limits.partitions": "150",
}
LATEST_METADATA = 13
STRANGE_ID = b"\x07" * 16


def in_memory(**more: str) -> Settings:
    return load_settings({**IN_MEMORY, **{key.replace("__", "."): value for key, value in more.items()}}, {})


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway(in_memory()) as running:
        yield running


async def ask(gateway: RunningGateway, key: ApiKey, version: int, message: object) -> Any:
    def exchange() -> Any:
        with Client(Address("127.0.0.1", gateway.bound[0].port), timeout=60.0) as client:
            return client.ask(key, version, message)

    return await asyncio.to_thread(exchange)


async def create(
    gateway: RunningGateway, *topics: CreatableTopic, validate: bool = False
) -> dict[str, CreatableTopicResult]:
    request = CreateTopicsRequest(list(topics), 5000, validate)
    response = await ask(gateway, ApiKey.CREATE_TOPICS, 7, request)
    return {topic.name: topic for topic in response.topics}


async def delete(
    gateway: RunningGateway, names: Sequence[str] = (), ids: Sequence[bytes] = (), version: int = 6
) -> list[str]:
    states = [DeleteTopicState(name) for name in names] + [
        DeleteTopicState(None, topic_id) for topic_id in ids
    ]
    request = DeleteTopicsRequest(states, list(names), 5000)
    response = await ask(gateway, ApiKey.DELETE_TOPICS, version, request)
    return [ErrorCode(result.error_code).name for result in response.responses]


async def describe(
    gateway: RunningGateway,
    names: Sequence[str] | None = None,
    ids: Sequence[bytes] = (),
    auto: bool = False,
    version: int = LATEST_METADATA,
) -> list[MetadataResponseTopic]:
    topics = None
    if names is not None or ids:
        topics = [MetadataRequestTopic(name=name) for name in names or ()]
        topics += [MetadataRequestTopic(topic_id, None) for topic_id in ids]
    message = MetadataRequest(topics, allow_auto_topic_creation=auto)
    response = await ask(gateway, ApiKey.METADATA, version, message)
    return list(response.topics)


async def errors(gateway: RunningGateway, *names: str, auto: bool = False) -> list[str]:
    return [ErrorCode(topic.error_code).name for topic in await describe(gateway, names, auto=auto)]


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_are_those_of_the_handler_table(gateway: RunningGateway, version: int) -> None:
    response = await ask(gateway, ApiKey.API_VERSIONS, version, ApiVersionsRequest("test", "1"))
    returned = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert returned == {int(key): RANGES[key] for key in HANDLERS}
    assert response.error_code == 0


@pytest.mark.parametrize("version", [-1, 5, 99])
async def test_api_versions_in_an_unknown_version_get_error_35_in_version_0(
    gateway: RunningGateway, version: int
) -> None:
    sent = request(ApiKey.API_VERSIONS, version, correlation_id=7, flexible=version > 0)
    received = await asyncio.to_thread(raw_exchange, "127.0.0.1", gateway.bound[0].port, sent)
    assert isinstance(received, bytes)
    assert received[:4] == b"\0\0\0\x07"
    assert int.from_bytes(received[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
    assert received[6:] == bytes.fromhex("00000001 0012 0000 0004")


async def test_a_client_without_a_proper_name_is_refused(gateway: RunningGateway) -> None:
    response = await ask(gateway, ApiKey.API_VERSIONS, 4, ApiVersionsRequest("a b", ""))
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(14))
async def test_a_created_topic_is_described_in_every_version(gateway: RunningGateway, version: int) -> None:
    created = (await create(gateway, CreatableTopic("t", 3, -1)))["t"]
    (topic,) = await describe(gateway, ["t"], version=version)
    assert (topic.name, topic.error_code, len(topic.partitions)) == ("t", 0, 3)
    assert all((p.leader_id, p.isr_nodes) == (1, [1]) for p in topic.partitions)
    if version >= 10:
        assert topic.topic_id == created.topic_id


async def test_the_brokers_address_is_the_advertised_one() -> None:
    settings = in_memory(listeners__advertise="kafka.example:1234")
    async with running_gateway(settings) as gateway:
        response = await ask(gateway, ApiKey.METADATA, 13, MetadataRequest([]))
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "kafka.example", 1234)
        assert response.cluster_id == gateway.services.cluster_id


async def test_null_means_all_topics_and_an_empty_list_none(gateway: RunningGateway) -> None:
    await create(gateway, CreatableTopic("b", 1, 1), CreatableTopic("a", 1, 1))
    assert [topic.name for topic in await describe(gateway)] == ["a", "b"]
    assert await describe(gateway, []) == []
    assert [topic.name for topic in await describe(gateway, [], version=0)] == ["a", "b"]


async def test_an_unknown_topic_is_created_only_if_client_and_gateway_allow(gateway: RunningGateway) -> None:
    assert await errors(gateway, "new") == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert await errors(gateway, "new", auto=True) == ["NONE"]
    assert await errors(gateway, "new") == ["NONE"]
    async with running_gateway(in_memory(**{"broker__auto.create.topics.enable": "false"})) as strict:
        assert await errors(strict, "new", auto=True) == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_a_topic_created_automatically_has_the_default_number_of_partitions() -> None:
    async with running_gateway(in_memory(**{"broker__num.partitions": "5"})) as gateway:
        (topic,) = await describe(gateway, ["new"], auto=True)
        assert len(topic.partitions) == 5


async def test_invalid_and_unknown_names_have_different_errors(gateway: RunningGateway) -> None:
    await create(gateway, CreatableTopic("a.b", 1, 1))
    assert await errors(gateway, "", "a b", "nope", "a.b") == [
        "INVALID_TOPIC_EXCEPTION",
        "INVALID_TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NONE",
    ]
    assert await errors(gateway, "a_b", auto=True) == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_a_topic_is_found_by_its_id(gateway: RunningGateway) -> None:
    topic_id = (await create(gateway, CreatableTopic("t", 1, 1)))["t"].topic_id
    found, strange = await describe(gateway, ids=[topic_id, STRANGE_ID])
    assert (found.name, found.error_code) == ("t", 0)
    assert (strange.name, strange.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    (old,) = await describe(gateway, ids=[STRANGE_ID], version=11)
    assert (old.name, old.error_code) == ("", ErrorCode.INVALID_REQUEST)  # ids are allowed from 12 on


async def test_in_a_request_with_ids_names_do_not_count(gateway: RunningGateway) -> None:
    topic_id = (await create(gateway, CreatableTopic("t", 1, 1), CreatableTopic("u", 1, 1)))["t"].topic_id
    assert [topic.name for topic in await describe(gateway, ["u"], [topic_id])] == ["t"]


async def test_a_deletion_by_name_and_id_of_one_topic_is_refused_once_with_both(
    gateway: RunningGateway,
) -> None:
    topic_id = (await create(gateway, CreatableTopic("t", 1, 1)))["t"].topic_id
    states = [DeleteTopicState("t"), DeleteTopicState(None, topic_id)]
    response = await ask(gateway, ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(states, [], 5000))
    refused = [(result.name, result.topic_id, result.error_code) for result in response.responses]
    assert refused == [("t", topic_id, ErrorCode.INVALID_REQUEST)]


async def test_a_created_topic_returns_its_configs_as_they_were_given(gateway: RunningGateway) -> None:
    given = [CreatableTopicConfig("preallocate", "TRUE")]
    created = (await create(gateway, CreatableTopic("t", 1, 1, configs=given)))["t"]
    returned = {config.name: config.value for config in created.configs or ()}
    assert (returned["preallocate"], returned["flush.ms"]) == ("TRUE", str(2**63 - 1))


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [(5, -1, "INVALID_REQUEST"), (-1, 5, "INVALID_REQUEST"), (5, 5, "NONE")],
)
async def test_a_producer_names_an_id_and_an_epoch_or_neither(
    gateway: RunningGateway, producer_id: int, epoch: int, error: str
) -> None:
    request = InitProducerIdRequest(None, 1000, producer_id, epoch)
    response = await ask(gateway, ApiKey.INIT_PRODUCER_ID, 5, request)
    assert ErrorCode(response.error_code).name == error
    assert response.producer_epoch == (0 if error == "NONE" else -1)


async def test_a_request_that_only_validates_creates_nothing(gateway: RunningGateway) -> None:
    result = (await create(gateway, CreatableTopic("t", -1, -1), validate=True))["t"]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)
    assert await errors(gateway, "t") == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_one_refused_topic_fails_no_other(gateway: RunningGateway) -> None:
    topics = [CreatableTopic("a", 1, 1), CreatableTopic("b", 0, 1), CreatableTopic("c d", 1, 1)]
    results = await create(gateway, *topics, CreatableTopic("twice", 1, 1), CreatableTopic("twice", 1, 1))
    assert {name: ErrorCode(result.error_code).name for name, result in results.items()} == {
        "a": "NONE",
        "b": "INVALID_PARTITIONS",
        "c d": "INVALID_TOPIC_EXCEPTION",
        "twice": "INVALID_REQUEST",
    }
    again = (await create(gateway, CreatableTopic("a", 1, 1)))["a"]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_all_topics_together_have_a_bound(gateway: RunningGateway) -> None:
    results = await create(gateway, CreatableTopic("a", 100, 1))
    assert results["a"].error_code == 0
    assert (await create(gateway, CreatableTopic("b", 51, 1)))["b"].error_code == ErrorCode.POLICY_VIOLATION
    assert (await create(gateway, CreatableTopic("b", 50, 1)))["b"].error_code == 0
    assert await errors(gateway, "c", auto=True) == ["POLICY_VIOLATION"]


async def test_invariant_11_a_topic_created_again_has_a_new_id(gateway: RunningGateway) -> None:
    first = (await create(gateway, CreatableTopic("t", 1, 1)))["t"].topic_id
    assert await delete(gateway, ["t"]) == ["NONE"]
    assert await errors(gateway, "t") == ["UNKNOWN_TOPIC_OR_PARTITION"]
    second = (await create(gateway, CreatableTopic("t", 1, 1)))["t"].topic_id
    assert first != second
    assert await delete(gateway, ids=[first]) == ["UNKNOWN_TOPIC_ID"]
    assert await delete(gateway, ids=[second]) == ["NONE"]


async def test_deletions_that_make_no_sense_are_refused(gateway: RunningGateway) -> None:
    topic_id = (await create(gateway, CreatableTopic("t", 1, 1)))["t"].topic_id
    assert await delete(gateway, ["nope"]) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert await delete(gateway, ["t", "t"]) == ["INVALID_REQUEST"]
    assert await delete(gateway, ["t"], [topic_id]) == ["INVALID_REQUEST"]
    assert await delete(gateway, ids=[bytes(16)]) == ["INVALID_REQUEST"]
    assert await errors(gateway, "t") == ["NONE"]
    async with running_gateway(in_memory(**{"broker__delete.topic.enable": "false"})) as strict:
        await create(strict, CreatableTopic("t", 1, 1))
        assert await delete(strict, ["t"]) == ["TOPIC_DELETION_DISABLED"]
        assert await delete(strict, ["t"], version=3) == ["TOPIC_DELETION_DISABLED"]
        assert await delete(strict, ["t"], version=2) == ["INVALID_REQUEST"]


@pytest.mark.parametrize("version", range(1, 5))
async def test_configs_of_topics_and_gateway_are_described(gateway: RunningGateway, version: int) -> None:
    await create(gateway, CreatableTopic("t", 1, 1))
    resources = [
        DescribeConfigsResource(kind, name, None)
        for kind, name in [(2, "t"), (4, "1"), (2, "nope"), (4, "9"), (8, "1")]
    ]
    response = await ask(
        gateway, ApiKey.DESCRIBE_CONFIGS, version, DescribeConfigsRequest(resources, True, True)
    )
    codes = [ErrorCode(result.error_code).name for result in response.results]
    assert codes == ["NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST", "INVALID_REQUEST"]
    assert len(response.results[0].configs) == 33
    assert "num.partitions" in {config.name for config in response.results[1].configs}


async def test_only_the_requested_configs_are_described(gateway: RunningGateway) -> None:
    await create(gateway, CreatableTopic("t", 1, 1))
    resource = DescribeConfigsResource(2, "t", ["retention.ms", "nope"])
    response = await ask(
        gateway, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest([resource], False, False)
    )
    (config,) = response.results[0].configs
    assert (config.name, config.documentation, config.synonyms) == ("retention.ms", None, [])


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_this_gateway(gateway: RunningGateway, version: int) -> None:
    response = await ask(gateway, ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest(True))
    assert response.cluster_id == gateway.services.cluster_id
    assert [(b.broker_id, b.port) for b in response.brokers] == [(1, gateway.bound[0].port)]
    assert response.cluster_authorized_operations > 0


async def test_a_controller_is_not_here(gateway: RunningGateway) -> None:
    message = DescribeClusterRequest(endpoint_type=2)
    response = await ask(gateway, ApiKey.DESCRIBE_CLUSTER, 1, message)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_a_version_that_is_advertised_for_old_clients_alone_closes_the_connection(
    gateway: RunningGateway,
) -> None:
    sent = request(ApiKey.PRODUCE, 2, b"\0\1\0\0\0\0\0\0\0\0")
    received = await asyncio.to_thread(raw_exchange, "127.0.0.1", gateway.bound[0].port, sent)
    assert not isinstance(received, bytes)
    refused = gateway.services.metrics.registry.get_sample_value
    assert refused("dragoman_connections_refused_total", {"reason": "request"}) == 1
    assert refused("dragoman_connections_refused_total", {"reason": "failure"}) is None


async def test_a_gateway_that_is_gone_is_a_client_error(gateway: RunningGateway) -> None:
    with pytest.raises(ClientError, match="cannot connect"):
        Client(Address("127.0.0.1", 1), timeout=1.0)
