"""Client quotas through a whole gateway in memory: set, described, enforced."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from gateway.wire.messages.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.metadata import MetadataRequest
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Record, build_batch
from tests.support.in_memory import ANONYMOUS_PRODUCER, InMemoryGateway, in_memory_gateway

PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CONNECTION = "connection_creation_rate"
BATCH_BYTES = 20_000


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    """Rates over little more than a second, so that tests take little time."""
    async with in_memory_gateway({"quotas.quota.window.num": "2"}) as running:
        yield running


async def alter(
    gateway: InMemoryGateway,
    entity: Mapping[str, str | None],
    values: Mapping[str, float | None],
    dry: bool = False,
) -> tuple[str, str | None]:
    """The error's name and message of one entity."""
    parts = [AlterClientQuotasRequestEntityData(kind, name) for kind, name in entity.items()]
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    request = AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(parts, ops)], dry)
    (entry,) = (await gateway.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)).entries
    return ErrorCode(entry.error_code).name, entry.error_message


async def described(gateway: InMemoryGateway, version: int = 1) -> list[tuple[dict[str, Any], Any]]:
    response = await gateway.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, DescribeClientQuotasRequest([]))
    assert response.error_code == 0 and response.entries is not None
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_changed_described_and_removed(gateway: InMemoryGateway, version: int) -> None:
    both = {"user": None, "client-id": "c"}
    assert await alter(gateway, both, {PRODUCE: 1e6, FETCH: 5.0}) == ("NONE", None)
    assert await alter(gateway, {"ip": "10.0.0.1"}, {CONNECTION: 3.0}) == ("NONE", None)
    assert await alter(gateway, both, {FETCH: None, REQUEST: 0.5}) == ("NONE", None)
    assert await described(gateway, version) == [
        ({"ip": "10.0.0.1"}, {CONNECTION: 3.0}),
        ({"client-id": "c", "user": None}, {PRODUCE: 1e6, REQUEST: 0.5}),
    ]
    await alter(gateway, both, {PRODUCE: None, REQUEST: None})
    assert await described(gateway, version) == [({"ip": "10.0.0.1"}, {CONNECTION: 3.0})]


async def test_a_request_that_only_validates_changes_nothing(gateway: InMemoryGateway) -> None:
    assert (await alter(gateway, {"user": "u"}, {PRODUCE: 1.0}, dry=True))[0] == "NONE"
    assert (await alter(gateway, {"user": "u"}, {PRODUCE: -1.0}, dry=True))[0] == "INVALID_REQUEST"
    assert await described(gateway) == []


async def test_a_refused_quota_has_a_reason(gateway: InMemoryGateway) -> None:
    error, message = await alter(gateway, {"user": "u"}, {"nonsense": 1.0})
    assert error == "INVALID_REQUEST" and message is not None and "nonsense" in message


async def test_a_filter_that_makes_no_sense_gets_an_error_and_no_entries(gateway: InMemoryGateway) -> None:
    request = DescribeClientQuotasRequest([ComponentData("user", 0, None)])
    response = await gateway.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)
    assert response.error_code == ErrorCode.INVALID_REQUEST and response.entries is None


async def test_more_entities_than_fit_one_journal_request_are_all_changed(
    gateway: InMemoryGateway,
) -> None:
    entries = [
        AlterClientQuotasRequestEntryData(
            [AlterClientQuotasRequestEntityData("client-id", f"c{n}")], [OpData(PRODUCE, 5.0)]
        )
        for n in range(150)
    ]
    response = await gateway.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries))
    assert [entry.error_code for entry in response.entries] == [0] * 150
    assert len(await described(gateway)) == 150


def connect(gateway: InMemoryGateway) -> Client:
    return Client(Address("127.0.0.1", gateway.running.bound[0].port), timeout=10.0)


def produce_request(topic: str = "t") -> ProduceRequest:
    batch = build_batch(
        [Record(0, 0, b"k", bytes(BATCH_BYTES))], base_timestamp=0, producer=ANONYMOUS_PRODUCER
    )
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, bytes(batch))])
    return ProduceRequest(None, -1, 10_000, [data])


def fetch_request(max_wait_ms: int = 0, **session: Any) -> FetchRequest:
    topic = FetchTopic("t", partitions=[FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)])
    return FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 24, topics=[topic], **session
    )


@pytest.mark.serial
async def test_a_producer_over_its_quota_gets_its_response_and_is_then_muted(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t")
    # Its client id is "dragoman-cli" or the like: the default applies to any.
    await alter(gateway, {"client-id": None}, {PRODUCE: BATCH_BYTES / 2})

    def exchange() -> tuple[int, float, float]:
        with connect(gateway) as client:
            began = time.monotonic()
            first = client.ask(ApiKey.PRODUCE, 9, produce_request())
            response_s = time.monotonic() - began
            client.ask(ApiKey.METADATA, 12, MetadataRequest([]))
            return first.throttle_time_ms, response_s, time.monotonic() - began

    throttle_ms, response_s, muted_s = await asyncio.to_thread(exchange)
    assert 900 <= throttle_ms <= 1_300
    assert response_s < 0.7
    assert muted_s >= throttle_ms / 1000 - 0.01
    text = gateway.running.services.metrics.render().decode()
    assert 'dragoman_throttles_total{quota="producer_byte_rate"} 1.0' in text


@pytest.mark.serial
async def test_the_requests_of_other_clients_are_not_delayed(gateway: InMemoryGateway) -> None:
    await gateway.create("t")
    await alter(gateway, {"client-id": None}, {PRODUCE: BATCH_BYTES / 5})

    def exchange() -> float:
        with connect(gateway) as throttled, connect(gateway) as other:
            assert throttled.ask(ApiKey.PRODUCE, 9, produce_request()).throttle_time_ms > 3_000
            began = time.monotonic()
            other.ask(ApiKey.METADATA, 12, MetadataRequest([]))
            return time.monotonic() - began

    assert await asyncio.to_thread(exchange) < 1.0


@pytest.mark.serial
async def test_a_consumer_over_its_quota_gets_an_empty_response_and_then_all_records(
    gateway: InMemoryGateway,
) -> None:
    await gateway.create("t")

    def exchange() -> list[tuple[int, int]]:
        with connect(gateway) as client:
            for _ in range(2):
                client.ask(ApiKey.PRODUCE, 9, produce_request())
        asyncio.run_coroutine_threadsafe(
            alter(gateway, {"user": "ANONYMOUS"}, {FETCH: BATCH_BYTES * 1.5}), loop
        ).result(10)
        seen = []
        with connect(gateway) as client:
            for _ in range(3):
                response = client.ask(ApiKey.FETCH, 12, fetch_request())
                parts = [part for topic in response.responses for part in topic.partitions]
                seen.append((response.throttle_time_ms, sum(len(part.records or b"") for part in parts)))
        return seen

    loop = asyncio.get_running_loop()
    first, second, third = await asyncio.to_thread(exchange)
    # No fetch gets more than the quota of one window.
    assert first[0] == 0 and BATCH_BYTES < first[1] < 2 * BATCH_BYTES
    assert second[0] > 0 and second[1] == 0
    assert third == first


async def test_a_session_that_was_throttled_misses_nothing_and_is_not_made(gateway: InMemoryGateway) -> None:
    await gateway.create("t")

    def exchange() -> tuple[Any, Any, Any, Any]:
        def limited(value: float | None) -> None:
            asyncio.run_coroutine_threadsafe(alter(gateway, {"user": None}, {FETCH: value}), loop).result(10)

        with connect(gateway) as client:
            client.ask(ApiKey.PRODUCE, 9, produce_request())
            made = client.ask(ApiKey.FETCH, 12, fetch_request(session_id=0, session_epoch=0))
            follow = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 24,
                session_id=made.session_id,
                session_epoch=1,
                topics=[],
            )
            limited(BATCH_BYTES * 0.9)
            throttled = client.ask(ApiKey.FETCH, 12, follow)
            follow.session_epoch = 2
            limited(None)
            again = client.ask(ApiKey.FETCH, 12, follow)
            limited(BATCH_BYTES * 0.4)
            refused = client.ask(ApiKey.FETCH, 12, fetch_request(session_id=0, session_epoch=0))
            return made, throttled, again, refused

    loop = asyncio.get_running_loop()
    made, throttled, again, refused = await asyncio.to_thread(exchange)
    assert throttled.throttle_time_ms > 0 and throttled.session_id == made.session_id
    assert not throttled.responses and throttled.error_code == 0
    assert again.throttle_time_ms == 0 and len(again.responses) == 1
    assert refused.throttle_time_ms > 0 and refused.session_id == 0


@pytest.mark.serial
async def test_a_client_over_its_share_of_handler_time_is_throttled_for_a_window_at_most(
    gateway: InMemoryGateway,
) -> None:
    await alter(gateway, {"client-id": None}, {REQUEST: 0.0001})

    def exchange() -> tuple[int, float]:
        with connect(gateway) as client:
            throttle_ms = client.ask(ApiKey.METADATA, 12, MetadataRequest([])).throttle_time_ms
            began = time.monotonic()
            client.ask(ApiKey.METADATA, 12, MetadataRequest([]))
            return throttle_ms, time.monotonic() - began

    throttle_ms, muted_s = await asyncio.to_thread(exchange)
    assert throttle_ms == 1_000
    assert muted_s >= 0.9


@pytest.mark.serial
async def test_a_member_over_its_share_of_handler_time_is_throttled_too(gateway: InMemoryGateway) -> None:
    await gateway.create("t")
    await alter(gateway, {"client-id": None}, {REQUEST: 0.0001})
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])]
    requests = (
        (ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "ghost"), 25),
        (ApiKey.OFFSET_COMMIT, 9, OffsetCommitRequest("g", topics=topics), 0),
    )

    def exchange(key: ApiKey, version: int, message: object) -> tuple[Any, float]:
        with connect(gateway) as client:
            response = client.ask(key, version, message)
            began = time.monotonic()
            client.ask(ApiKey.METADATA, 12, MetadataRequest([]))
            return response, time.monotonic() - began

    for key, version, message, error in requests:
        response, muted_s = await asyncio.to_thread(exchange, key, version, message)
        code = response.error_code if key is ApiKey.HEARTBEAT else response.topics[0].partitions[0].error_code
        assert (response.throttle_time_ms, code) == (1_000, error)
        assert muted_s >= 0.9


@pytest.mark.serial
async def test_connections_of_an_address_over_its_quota_are_closed_after_a_while(
    gateway: InMemoryGateway,
) -> None:
    await alter(gateway, {"ip": "127.0.0.1"}, {CONNECTION: 2.0})

    def exchange() -> list[float]:
        lasted: list[float] = []
        for _ in range(3):
            began = time.monotonic()
            with socket.create_connection(("127.0.0.1", gateway.running.bound[0].port), 5) as sock:
                sock.settimeout(0.1 if len(lasted) < 2 else 3.0)
                try:
                    assert sock.recv(1) == b""
                    lasted.append(time.monotonic() - began)
                except TimeoutError:
                    lasted.append(float("inf"))
        return lasted

    lasted = await asyncio.to_thread(exchange)
    assert lasted[:2] == [float("inf")] * 2
    assert 0.05 < lasted[2] <= 1.5


@pytest.mark.serial
async def test_a_gateway_does_not_wait_for_muted_connections_when_it_stops() -> None:
    def exchange(gateway: InMemoryGateway) -> Client:
        client = connect(gateway)
        assert client.ask(ApiKey.PRODUCE, 9, produce_request()).throttle_time_ms > 60_000
        return client

    async with in_memory_gateway() as gateway:
        await gateway.create("t")
        await alter(gateway, {"client-id": None}, {PRODUCE: BATCH_BYTES / 100})
        client = await asyncio.to_thread(exchange, gateway)
        began = time.monotonic()
    assert time.monotonic() - began < 2.0
    client.__exit__(None, None, None)
