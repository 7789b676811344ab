"""A gateway with topics of very many partitions: its memory, and how long it holds the event loop at once."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from gateway.wire.apis import RANGES, ApiKey
from gateway.wire.messages import codec
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.caller import Caller, collected_as_in_a_process
from tests.support.in_memory import in_memory_gateway

MANY: Final = 100_000
LONGEST_S: Final = 0.010
SLACK: Final = 5.0
"""For machines that do other work besides."""
MAX_IDLE_BYTES: Final = 60_000_000
ALL: Final = MetadataRequest(None)


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[Caller]:
    settings = {"limits.topic_partitions": str(MANY), "limits.partitions": str(3 * MANY)}
    with collected_as_in_a_process():
        async with in_memory_gateway(settings) as running:
            yield Caller(running)


async def probed(caller: Caller, key: ApiKey, request: object) -> float:
    """The longest iteration of the loop that the request causes, in CPU seconds."""
    version = RANGES[key][1]
    _, probe = await asyncio.wait_for(
        caller.probed(key, version, codec.encode_request(key, version, request)), 60
    )
    return max(probe.slice_s, await asyncio.wait_for(caller.freed(), 60))


async def answer(caller: Caller, key: ApiKey, request: object) -> Any:
    version = RANGES[key][1]
    body = await caller.answer(key, version, codec.encode_request(key, version, request))
    return codec.decode_response(key, version, body)


def create(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 20_000)


def grow(name: str, partitions: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], 20_000)


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=20_000)


def named(*names: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names])


@pytest.mark.serial
async def test_a_topic_of_very_many_partitions_lets_others_go_on_whatever_is_done_with_it(
    caller: Caller,
) -> None:
    # Imports, and encoders that are compiled.
    await answer(caller, ApiKey.CREATE_TOPICS, create("small", 3_000))
    for request in (ALL, named("small")):
        await answer(caller, ApiKey.METADATA, request)
    steps: list[tuple[ApiKey, object]] = [
        (ApiKey.CREATE_TOPICS, create("t", MANY - 1)),
        (ApiKey.CREATE_PARTITIONS, grow("t", MANY)),
        (ApiKey.METADATA, named("t", "small")),
        (ApiKey.METADATA, ALL),
        (ApiKey.METADATA, named("t")),
        (ApiKey.DELETE_TOPICS, delete("t")),
    ]
    took = {f"{key.name} {at}": await probed(caller, key, request) for at, (key, request) in enumerate(steps)}
    assert max(took.values()) < SLACK * LONGEST_S, took
    assert [(topic.name, len(topic.partitions)) for topic in caller.services.topics.all()] == [
        ("small", 3_000)
    ]


@pytest.mark.serial
async def test_a_hundred_thousand_idle_partitions_fit_into_60_mb(caller: Caller) -> None:
    await caller.ask(ApiKey.METADATA, 12, codec.encode_request(ApiKey.METADATA, 12, ALL))
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10):
            await answer(caller, ApiKey.CREATE_TOPICS, create(f"t{number}", MANY // 10))
        await caller.ask(ApiKey.METADATA, 12, codec.encode_request(ApiKey.METADATA, 12, ALL))
        # And each has been needed for something.
        assert all(
            log.high_watermark == 0 for topic in caller.services.topics.all() for log in topic.partitions
        )
        await caller.freed()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(caller.services.shard.state.logs) == MANY
    assert after - before < MAX_IDLE_BYTES


async def test_metadata_of_a_topic_of_very_many_partitions_is_encoded_once_until_topics_change(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "tu":
        await answer(caller, ApiKey.CREATE_TOPICS, create(name, 2_000))
    encoded = 0
    encode = codec.encoding_response

    def counted(key: ApiKey, *rest: Any) -> Any:
        nonlocal encoded
        encoded += key is ApiKey.METADATA
        return encode(key, *rest)

    monkeypatch.setattr(codec, "encoding_response", counted)

    async def counts(*names: str) -> list[tuple[str, int, int]]:
        response = await answer(caller, ApiKey.METADATA, named(*names))
        return [(topic.name, topic.error_code, len(topic.partitions)) for topic in response.topics]

    assert await counts("t") == await counts("t") == [("t", 0, 2_000)]
    assert encoded == 1
    assert await counts("t", "u") == [("t", 0, 2_000), ("u", 0, 2_000)]
    assert await counts("u", "t") == [("u", 0, 2_000), ("t", 0, 2_000)]
    assert await counts("t", "t") == [("t", 0, 2_000)]
    assert encoded == 3
    await answer(caller, ApiKey.CREATE_PARTITIONS, grow("t", 2_001))
    assert await counts("t") == [("t", 0, 2_001)]
    await answer(caller, ApiKey.DELETE_TOPICS, delete("u"))
    assert await counts("t") == await counts("t") == [("t", 0, 2_001)]
    assert [(name, partitions) for name, _, partitions in await counts("t", "v")] == [("t", 2_001), ("v", 1)]
    assert encoded > 3
